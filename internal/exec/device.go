package exec

import (
	"encoding/binary"

	"attune/internal/arch"
)

// Attributes of the device, by their numbers in the driver API.
const (
	attributeCount  = 160
	attributeName   = 64
	multiprocessors = 132 // those of the simulator's chip
)

// common are the attributes that do not depend on the architecture. Sizes and counts are those of an
// H100 with 80 GB; clocks are too, though the simulator has none.
var common = map[int]int32{
	1: 1024, 2: 1024, 3: 1024, 4: 64, 5: 1<<31 - 1, 6: 65535, 7: 65535, // threads, blocks, grids
	8: 48 << 10, 9: 64 << 10, 10: 32, 11: 1<<31 - 1, 12: 64 << 10, // shared and constant memory, warp, pitch, registers
	13: 1_980_000, 14: 512, 15: 1, 16: multiprocessors, 19: 1,
	21: 131072, 22: 131072, 23: 65536, 24: 16384, 25: 16384, 26: 16384, 27: 32768, 28: 32768, 29: 2048, 30: 512,
	31: 1, 32: 1, 33: 1, 36: 2_619_000, 37: 5120, 38: 50 << 20, 40: 3, 41: 1, 51: 32,
	69: 1 << 28, 78: 1, 79: 1, 80: 1, 82: 64 << 10, 83: 1, 87: 2, 89: 1, 90: 1, 91: 1,
	95: 1, 99: 1, 102: 1, 108: 30 << 20, 109: 128 << 20, 111: 1 << 10, 115: 1, 126: 4, 129: 1,
}

// attributesOf returns the attributes of the simulated device.
func attributesOf(device string) [attributeCount]int32 {
	var a [attributeCount]int32
	for i, v := range common {
		a[i] = v
	}
	number, _ := arch.Number(device)
	a[75], a[76] = int32(number/10), int32(number%10)
	optIn, threads, blocks := int32(227<<10), int32(2048), int32(32)
	switch number {
	case 80, 87:
		optIn = 163 << 10
	case 86, 88:
		optIn, threads, blocks = 99<<10, 1536, 16
	case 89, 120, 121:
		optIn, threads, blocks = 99<<10, 1536, 24
	}
	a[39], a[81], a[97], a[106] = threads, optIn+1<<10, optIn, blocks
	if number >= 90 && number < 120 {
		a[120], a[127] = 1, 1 // clusters and tensor maps
	}
	return a
}

// machineReply is the reply to the first request.
func machineReply(a *arena, device string, memory uint64) []byte {
	reply := u64s(a.base, uint64(len(a.data)/4*3), memory)
	for _, v := range attributesOf(device) {
		reply = binary.LittleEndian.AppendUint32(reply, uint32(v))
	}
	name := make([]byte, attributeName)
	copy(name[:attributeName-1], "attune simulator ("+device+")")
	return append(reply, name...)
}
