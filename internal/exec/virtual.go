package exec

import (
	"fmt"

	"attune/internal/finding"
)

// reserve takes addresses without memory.
func (s *session) reserve(size uint64) (status, []byte) {
	if size > mostAddresses {
		return outOfMemory, nil
	}
	base, err := s.memory.Reserve(int(size))
	if err != nil {
		s.say("%v", err)
		return outOfMemory, nil
	}
	s.kinds[base], s.reserved[base] = reservedMemory, int(size)
	return success, u64s(base)
}

// unreserve gives back reserved addresses, of which none has memory any more. The answer is their number.
func (s *session) unreserve(base uint64) (status, []byte) {
	size := s.reserved[base]
	if s.memory.Mapped(base, size) {
		return invalidValue, nil
	}
	delete(s.kinds, base)
	delete(s.reserved, base)
	return success, u64s(uint64(size))
}

// inReservation reports whether a range of addresses lies in one reservation.
func (s *session) inReservation(address, size uint64) bool {
	for base, bytes := range s.reserved {
		if address >= base && address-base <= uint64(bytes) && size <= uint64(bytes)-(address-base) {
			return size > 0
		}
	}
	return false
}

// mapMemory gives reserved addresses memory; device says whether it is the device's.
func (s *session) mapMemory(address, size, device uint64) status {
	if !s.inReservation(address, size) || s.memory.Mapped(address, int(size)) {
		return invalidValue
	}
	s.allocated++
	v := finding.Variable{Name: fmt.Sprintf("%s %d", kindNames[reservedMemory], s.allocated)}
	if err := s.memory.Map(v, address, int(size)); err != nil {
		s.say("%v", err)
		return outOfMemory
	}
	if device == 0 { // the host writes it without a call
		if err := s.memory.MarkWritten(address, int(size)); err != nil {
			return invalidValue
		}
	}
	return success
}

// unmapMemory takes back the memory of reserved addresses.
func (s *session) unmapMemory(address, size uint64) status {
	if !s.inReservation(address, size) || !s.memory.Mapped(address, int(size)) {
		return invalidValue
	}
	s.memory.Unmap(address, int(size))
	return success
}
