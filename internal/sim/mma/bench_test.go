package mma

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func mustLookup(t testing.TB, text string) *Instruction {
	t.Helper()
	words := strings.Split(text, ".")
	in, err := Lookup(words[0], words[1:])
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func BenchmarkMultiply(b *testing.B) {
	for _, text := range []string{
		"wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3",
		"wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16",
		"wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16",
		"wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8",
		"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
		"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
		"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
		"wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16",
	} {
		for mode, name := range []string{"exact", "f32", "f64"} {
			in := mustLookup(b, text)
			b.Run(in.Op.String()+"_"+in.Shape.String()+"_"+in.A.String()+"_"+in.D.String()+"/"+name, func(b *testing.B) {
				p, err := in.Product(Hopper, Mode(mode))
				if err != nil {
					b.Fatal(err)
				}
				s := in.Shape
				random := rand.New(rand.NewPCG(1, 2))
				draw := func(n int, t Type) []uint32 {
					m := make([]uint32, n)
					for i := range m {
						m[i] = drawModerate(random, t)
					}
					return m
				}
				x, y, z := draw(s.M*s.K, in.A), draw(s.N*s.K, in.B), draw(s.M*s.N, in.C)
				d := make([]uint32, s.M*s.N)
				var scratch Scratch
				b.ReportAllocs()
				for b.Loop() {
					p.Multiply(&scratch, d, x, y, z)
				}
				b.ReportMetric(float64(b.N)*float64(s.M*s.N*s.K)/b.Elapsed().Seconds()/1e6, "MMAC/s")
			})
		}
	}
}

// drawModerate draws an element with a magnitude near 1, or any integer.
func drawModerate(random *rand.Rand, t Type) uint32 {
	x := uint32(random.Uint64())
	switch t {
	case F16:
		return x&0x83FF | (13+x>>16&3)<<10
	case BF16:
		return x&0x807F | (125+x>>16&3)<<7
	case F32, TF32:
		return x&0x807FFFFF | (125+x>>10&3)<<23
	case E4M3:
		return x&0x87 | (4+x>>16&7)<<3
	case E5M2:
		return x&0x83 | (12+x>>16&7)<<2
	}
	return x & (1<<t.word() - 1)
}
