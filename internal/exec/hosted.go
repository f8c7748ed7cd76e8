package exec

import (
	"fmt"

	"attune/internal/finding"
	"attune/internal/sim/mem"
)

// Hosted is a function of a library of NVIDIA's that the host has computed, without a kernel.
type Hosted struct {
	Function string `json:"function"`
	Calls    int    `json:"calls"`
}

// region is what a function of a library accesses: rows of bytes.
type region struct {
	address, pitch, width, height uint64
	writes, host                  bool
}

// checkOnly is a bit of the number of regions: the call is noted by a request that follows.
const checkOnly = 1 << 31

// library notes a call that the host computes. It checks that the call stays in its allocations and
// reads what has been written, and marks what it writes.
func (s *session) library(f *fields) status {
	count := f.u32()
	regions := make([]region, min(count&^checkOnly, uint32(len(f.data)/40)))
	for i := range regions {
		regions[i] = region{f.u64(), f.u64(), f.u64(), f.u64(), f.u32() != 0, f.u32() != 0}
	}
	name := string(f.data)
	s.mu.Lock()
	defer s.mu.Unlock()
	if count&checkOnly == 0 {
		s.outcome.host(name)
	}
	for _, r := range regions { // reads come first: an output may be an input too
		if found := s.checkRegion(r); found != nil {
			s.addNamed(name, *found)
			if found.Kind == finding.OutOfBounds {
				return invalidValue
			}
		}
	}
	for _, r := range regions {
		for row := range r.height {
			if r.writes {
				_ = s.memory.MarkWritten(r.address+row*r.pitch, int(r.width)) // that of the host has no marks
			}
		}
	}
	return success
}

// checkRegion returns the first defect of a region: bytes outside of an allocation, or a read of bytes
// that were never written.
func (s *session) checkRegion(r region) *finding.Finding {
	verb := "reads"
	if r.writes {
		verb = "writes"
	}
	for row := range r.height {
		address := r.address + row*r.pitch
		b := s.memory.Find(address)
		if b == nil || !b.Holds(address, int(r.width)) {
			if r.host && !s.isDevice(address) {
				return nil
			}
			found := finding.New(finding.OutOfBounds, fmt.Sprintf("%s %d bytes at address %#x of global memory, %s", verb, r.width, address,
				mem.DescribeOutside(b, address, int(r.width))))
			return &found
		}
		if at := s.memory.FirstUnwritten(address, int(r.width)); !r.writes && at >= 0 {
			found := finding.New(finding.Uninitialized, fmt.Sprintf("reads byte %d of %s, which was never written", address-b.Base+uint64(at), b.Variable))
			found.Variable = b.Variable
			return &found
		}
	}
	return nil
}

func (o *Outcome) host(function string) {
	for _, h := range o.Hosted {
		if h.Function == function {
			h.Calls++
			return
		}
	}
	o.Hosted = append(o.Hosted, &Hosted{Function: function, Calls: 1})
}

// HostedCalls counts the calls of libraries that the host has computed.
func (o *Outcome) HostedCalls() int {
	n := 0
	for _, h := range o.Hosted {
		n += h.Calls
	}
	return n
}
