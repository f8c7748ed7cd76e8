package exec

import (
	"fmt"
	"math/bits"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"attune/internal/sim/mem"
)

// Sizes of the address range of device memory, in bytes. Addresses are not used again, so that a use
// after a free is found; a process with a limit of its addresses gets fewer.
const (
	mostAddresses  = 1 << 44
	leastAddresses = 1 << 34
)

// arenas is the number of arenas that are mapped. The Nth gets at most 1/N of the addresses, so that
// the arenas of 1000 processes fit in the 47 bits of addresses that a process has.
var arenas atomic.Int64

// arena is device memory: a file in memory that this process and the program map.
type arena struct {
	file   *os.File
	data   []byte
	base   uint64
	hosted uint64 // bytes at the end that registered host memory takes
}

func newArena() (*arena, error) {
	fd, err := unix.MemfdCreate("attune device memory", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make device memory: %w", err)
	}
	a := &arena{file: os.NewFile(uintptr(fd), "device memory"), base: mem.ArenaBase}
	for size := int64(mostAddresses) >> bits.Len64(uint64(arenas.Add(1)-1)); ; size /= 2 {
		if err = unix.Ftruncate(fd, size); err == nil {
			var at unsafe.Pointer
			if at, err = unix.MmapPtr(fd, 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE); err == nil {
				a.data = unsafe.Slice((*byte)(at), size)
				return a, nil
			}
		}
		if size <= leastAddresses {
			a.close()
			return nil, fmt.Errorf("map device memory: %w", err)
		}
	}
}

func (a *arena) close() {
	arenas.Add(-1)
	if len(a.data) > 0 {
		unix.MunmapPtr(unsafe.Pointer(&a.data[0]), uintptr(len(a.data)))
		a.data = nil
	}
	a.file.Close()
}

// memory makes an empty memory in the arena. Its upper quarter is for registered host memory.
func (a *arena) memory(limit int) *mem.Memory {
	return mem.NewArena(limit, &mem.Arena{Base: a.base, Data: a.data[:len(a.data)/4*3], Release: a.release})
}

// release gives the pages of freed memory back to the system.
func (a *arena) release(data []byte) {
	if len(data) == 0 {
		return
	}
	page := uint64(os.Getpagesize())
	start := uint64(uintptr(unsafe.Pointer(&data[0])) - uintptr(unsafe.Pointer(&a.data[0])))
	first, end := start/page*page, (start+uint64(len(data))+page-1)/page*page // the gaps around a buffer are larger than a page
	unix.Madvise(a.data[first:end], unix.MADV_REMOVE)
}

// host takes pages for registered host memory and returns their offset in the file.
func (a *arena) host(bytes uint64) (offset uint64, data []byte, ok bool) {
	start := uint64(len(a.data)/4*3) + a.hosted
	if bytes > uint64(len(a.data))-start {
		return 0, nil, false
	}
	a.hosted += bytes
	return start, a.data[start : start+bytes : start+bytes], true
}
