package exec

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/bits"
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"attune/internal/arch"
	"attune/internal/crash"
	"attune/internal/finding"
	"attune/internal/sim/mem"
	"attune/internal/tensormap"
)

// Kinds of memory, as the client numbers them.
const (
	deviceMemory = iota
	managedMemory
	hostMemory
	registeredMemory
	reservedMemory
	managedVariable // of a module; the client does not ask for it
)

// session is one process that has opened the driver.
type session struct {
	*Server
	arena     *arena
	memory    *mem.Memory
	heap      mem.Heap       // of the kernels
	kinds     map[uint64]int // of allocations, by their addresses
	reserved  map[uint64]int // bytes of reservations, by their addresses
	allocated int            // so far, of all kinds
	modules   []*module
	functions []*function
	repeats   map[string]*repeat // launches by kernel, extents and parameters
	seed      maphash.Seed       // of hashes of the memory
	process   int                // its number
}

func newSession(s *Server, a *arena) *session {
	return &session{Server: s, arena: a, memory: a.memory(s.options.Memory), kinds: map[uint64]int{}, reserved: map[uint64]int{}, repeats: map[string]*repeat{}, seed: maphash.MakeSeed()}
}

// serve answers the requests of a process until it ends.
func (s *Server) serve(ctx context.Context, c *net.UnixConn) (err error) {
	defer c.Close()
	a, err := newArena()
	if err != nil {
		return err
	}
	defer a.close()
	p := newSession(s, a)
	if _, _, err := c.WriteMsgUnix([]byte{0}, unix.UnixRights(int(a.file.Fd())), nil); err != nil {
		return err
	}
	for {
		request, body, err := readRequest(c)
		if err != nil {
			return nil // the process has ended, or has sent no more
		}
		s, printed, result := p.answer(ctx, request, body)
		if err := writeReply(c, s, printed, result); err != nil {
			return nil
		}
	}
}

// answer runs a request. A panic is reported and fails the request alone.
func (s *session) answer(ctx context.Context, request uint64, body []byte) (code status, printed, result []byte) {
	defer func() {
		if value := recover(); value != nil {
			s.crashed(crash.New(value, "a call of the program"))
			code, printed, result = launchFailed, nil, nil
		}
	}()
	f := &fields{data: body}
	if request == requestLaunch {
		return s.launch(ctx, f)
	}
	code, result = s.answerPlain(request, f)
	if f.err != nil {
		s.say("%v", f.err)
		return invalidValue, nil, nil
	}
	return code, nil, result
}

func (s *session) answerPlain(request uint64, f *fields) (status, []byte) {
	switch request {
	case requestHello:
		s.process = int(f.u32())
		return success, machineReply(s.arena, s.options.Arch, s.memoryBytes())
	case requestAlloc:
		return s.alloc(f)
	case requestFree:
		return s.free(f.u64(), f.u32() != 0)
	case requestCopy:
		return s.copy(f)
	case requestFill:
		return s.fill(f), nil
	case requestLoad:
		return s.loadModule(f.data)
	case requestUnload:
		return success, nil // its variables stay until the process ends
	case requestFunction:
		return s.findFunction(f)
	case requestKernels:
		return s.kernelNames(f)
	case requestGlobal:
		return s.findVariable(f)
	case requestTensorMap:
		return s.tensorMap(f)
	case requestRange:
		return s.rangeOf(f.u64())
	case requestRegister:
		return s.register(f)
	case requestUnregister:
		return s.unregister(f.u64())
	case requestMemory:
		return success, u64s(s.memoryBytes()-min(uint64(s.memory.Used()/2), s.memoryBytes()), s.memoryBytes())
	case requestLimit:
		if limit, value := f.u64(), f.u64(); limit == limitHeap {
			s.heap.Bytes = int64(min(value, s.memoryBytes()))
		}
		return success, nil
	case requestLibrary:
		return s.library(f), nil
	case requestTexture:
		return s.texture(f)
	case requestTextureFree:
		if !s.memory.RemoveTexture(f.u64()) {
			return invalidValue, nil
		}
		return success, nil
	case requestMap:
		return s.mapMemory(f.u64(), f.u64(), f.u64()), nil
	case requestUnmap:
		return s.unmapMemory(f.u64(), f.u64()), nil
	case requestReports:
		return s.answerReports(f)
	case requestUnsupported:
		s.unsupported(string(f.data))
		return notSupported, nil
	}
	return notSupported, nil
}

// memoryBytes is the memory of the device: half of the limit, because a byte has a mark.
func (s *session) memoryBytes() uint64 { return uint64(s.memory.Limit() / 2) }

func (s *session) capability() (major, minor int) {
	number, _ := arch.Number(s.options.Arch)
	return number / 10, number % 10
}

// limitHeap is the number of the limit of the heap that kernels allocate from.
const limitHeap = 2

// kindNames name allocations in findings.
var kindNames = []string{"allocation", "managed allocation", "pinned allocation", "registered memory", "mapped memory"}

func (s *session) alloc(f *fields) (status, []byte) {
	size, kind := f.u64(), int(f.u64())
	if kind == reservedMemory {
		return s.reserve(size)
	}
	if kind < 0 || kind >= registeredMemory || size > s.memoryBytes() {
		return outOfMemory, nil
	}
	s.allocated++
	v := finding.Variable{Name: fmt.Sprintf("%s %d", kindNames[kind], s.allocated)}
	if len(f.data) > 0 { // an argument of a kernel: its index and its name
		v = finding.Variable{Space: finding.Argument, Index: int(f.u32()), Bytes: int(size)}
		v.Name = string(f.data)
	}
	base, err := s.memory.Alloc(v, int(size))
	if err != nil {
		s.say("%v", err)
		return outOfMemory, nil
	}
	s.kinds[base] = kind
	if kind == managedMemory || kind == hostMemory { // the host writes it without a call
		if err := s.memory.MarkWritten(base, int(size)); err != nil {
			return invalidValue, nil
		}
	}
	return success, u64s(base)
}

// free frees memory of the device, or of the host: each has a call of its own. The answer is its size.
func (s *session) free(base uint64, host bool) (status, []byte) {
	kind, known := s.kinds[base]
	if !known || kind == registeredMemory || kind == managedVariable || (kind == hostMemory) != host {
		return invalidValue, nil
	}
	if kind == reservedMemory {
		return s.unreserve(base)
	}
	size := len(s.memory.Find(base).Data)
	delete(s.kinds, base)
	if err := s.memory.Free(base); err != nil {
		return invalidValue, nil
	}
	return success, u64s(uint64(size))
}

// isDevice reports whether an address is one of device memory, allocated or not.
func (s *session) isDevice(address uint64) bool {
	if address >= s.arena.base && address < s.arena.base+uint64(len(s.arena.data)) {
		return true
	}
	b := s.memory.Find(address)
	return b != nil && b.Holds(address, 1)
}

// copy checks a copy of a box. Between two places of device memory it also moves the bytes, and
// answers 1.
func (s *session) copy(f *fields) (status, []byte) {
	to, from, width, height, depth := f.u64(), f.u64(), f.u64(), f.u64(), f.u64()
	toPitch, toSlice, fromPitch, fromSlice := f.u64(), f.u64(), f.u64(), f.u64()
	if high, rows := bits.Mul64(height, depth); high > 0 || rows > mostAddresses {
		return invalidValue, nil
	}
	toDevice, fromDevice := s.isDevice(to), s.isDevice(from)
	for z := range depth {
		for y := range height {
			target, source := to+z*toSlice+y*toPitch, from+z*fromSlice+y*fromPitch
			var err error
			switch {
			case toDevice && fromDevice:
				err = s.memory.CopyWithin(target, source, int(width))
			case toDevice:
				err = s.memory.MarkWritten(target, int(width))
			case fromDevice && !s.holds(source, int(width)):
				err = fmt.Errorf("%d bytes at %#x are not inside of an allocation", width, source)
			}
			if err != nil {
				s.say("a copy of %d bytes: %v", width, err)
				return invalidValue, nil
			}
		}
	}
	if toDevice && fromDevice {
		return success, u32s(1)
	}
	return success, u32s(0)
}

func (s *session) holds(address uint64, size int) bool {
	b := s.memory.Find(address)
	return b != nil && b.Holds(address, size)
}

// fill sets rows of elements.
func (s *session) fill(f *fields) status {
	to, pitch, width, height := f.u64(), f.u64(), f.u64(), f.u64()
	value, element := f.u32(), f.u32()
	if element != 1 && element != 2 && element != 4 || width > s.memoryBytes() || height > 1 && pitch < width*uint64(element) {
		return invalidValue
	}
	row := slices.Repeat(binary.LittleEndian.AppendUint32(nil, value)[:element], int(width))
	for y := range height {
		if err := s.memory.Write(to+y*pitch, row); err != nil {
			s.say("a fill of %d bytes: %v", len(row), err)
			return invalidValue
		}
	}
	return success
}

// rangeOf answers with the allocation that has an address: its address, size and kind.
func (s *session) rangeOf(address uint64) (status, []byte) {
	b := s.memory.Find(address)
	if b == nil || !b.Holds(address, 1) {
		return success, append(u64s(0, 0), u32s(0, 0)...)
	}
	kind := s.kinds[b.Base]
	switch kind {
	case registeredMemory:
		kind = hostMemory
	case managedVariable:
		kind = managedMemory
	case reservedMemory:
		kind = deviceMemory // what is mapped there
	}
	return success, append(u64s(b.Base, uint64(len(b.Data))), u32s(kind, 1)...)
}

// register makes pages of the host device memory too. The client maps the pages of the file that the
// answer names in their place.
func (s *session) register(f *fields) (status, []byte) {
	address, size, first, bytes := f.u64(), f.u64(), f.u64(), f.u64()
	if address < first || address-first > bytes || size > bytes-(address-first) || first%uint64(os.Getpagesize()) != 0 {
		return invalidValue, nil
	}
	if s.isDevice(address) {
		return alreadyRegistered, nil
	}
	offset, data, ok := s.arena.host(bytes)
	if !ok {
		return outOfMemory, nil
	}
	s.allocated++
	v := finding.Variable{Name: fmt.Sprintf("%s %d", kindNames[registeredMemory], s.allocated)}
	if err := s.memory.Adopt(v, address, data[address-first:][:size:size]); err != nil {
		return alreadyRegistered, nil
	}
	s.kinds[address] = registeredMemory
	return success, u64s(offset)
}

func (s *session) unregister(address uint64) (status, []byte) {
	if s.kinds[address] != registeredMemory {
		return notRegistered, nil
	}
	b := s.memory.Find(address)
	size := len(b.Data)
	delete(s.kinds, address)
	if err := s.memory.Free(address); err != nil {
		return notRegistered, nil
	}
	return success, u64s(uint64(size))
}

// tensorMap encodes a tensor map in the simulator's form.
func (s *session) tensorMap(f *fields) (status, []byte) {
	types, rank := int(f.u32()), int(f.u32())
	t := mem.TensorMap{Address: f.u64()}
	five64 := func() (v [5]int) {
		for i := range v {
			v[i] = int(f.u64())
		}
		return v
	}
	five32 := func() (v [5]int) {
		for i := range v {
			v[i] = int(f.u32())
		}
		return v
	}
	dims, strides, box, steps := five64(), five64(), five32(), five32()
	interleave, swizzle, promotion, fill := int(f.u32()), int(f.u32()), int(f.u32()), int(f.u32())
	name := func(list []string, i int) string {
		if i < 0 || i >= len(list) {
			return fmt.Sprint(i)
		}
		return list[i]
	}
	if f.err != nil || rank < 1 || rank > 5 {
		return invalidValue, nil
	}
	t.Map = tensormap.Map{
		Type: name(tensormap.Types, types), Dims: dims[:rank], Strides: strides[:rank-1], Box: box[:rank], ElementStrides: steps[:rank],
		Interleave: name(tensormap.Interleaves, interleave), Swizzle: name(tensormap.Swizzles, swizzle), OOB: name(tensormap.OOBs, fill),
		L2Promotion: name(tensormap.Promotions, promotion),
	}
	data, err := t.Encode()
	if err != nil {
		s.say("cuTensorMapEncodeTiled: %v", err)
		return invalidValue, nil
	}
	return success, data
}
