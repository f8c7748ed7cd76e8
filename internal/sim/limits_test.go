package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"attune/internal/sim/mem"
)

// limited runs a kernel in a memory with a limit.
func limited(t *testing.T, text string, limit int, l Launch, o Options) error {
	t.Helper()
	p, err := Load(mustParse(t, text), "")
	if err != nil {
		t.Fatal(err)
	}
	m := mem.NewLimited(limit)
	l.Params = append(littleEndian(buffer(t, m, "out", 4096), 8), littleEndian(buffer(t, m, "in", 4096), 8)...)
	if l.Grid == [3]int{} {
		l.Grid = [3]int{1, 1, 1}
	}
	if l.Block == [3]int{} {
		l.Block = [3]int{32, 1, 1}
	}
	used := m.Used()
	_, err = p.Run(t.Context(), m, l, o)
	if m.Used() != used || m.Len() != 2 {
		t.Errorf("the launch leaves %d bytes and %d buffers, want %d and 2", m.Used(), m.Len(), used)
	}
	return err
}

func containsAll(t *testing.T, name string, err error, want ...string) {
	t.Helper()
	for _, text := range want {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: error %v does not contain %q", name, err, text)
		}
	}
}

// TestMemoryLimit tests kernels that need more memory than a launch may have. The error names the
// sizes and the limit, and comes before the allocation wherever the size is known.
func TestMemoryLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	const limit = 64 << 20
	err := limited(t, kernelWith(".global .b8 g[1073741824];", "ret;"), limit, Launch{}, Options{})
	containsAll(t, "a variable", err, "1073741824 bytes", "the variable g", "the limit is 67108864 (64 MiB)")

	many := strings.Replace(kernel("ret;"), "%r<64>", "%r<200000>", 1)
	err = limited(t, many, limit, Launch{Block: [3]int{1024, 1, 1}}, Options{})
	containsAll(t, "registers", err, "launch k", "bytes of registers per warp", "64 MiB")

	// Interleaved blocks become resident as far as memory allows.
	shared := kernelWith(".shared .b8 s[40960];", "mov.u32 %r1, s;\n st.volatile.global.u32 [%rd0], 0;\n ret;")
	if err := limited(t, shared, limit, Launch{Grid: [3]int{300, 1, 1}}, Options{Checks: true}); err != nil {
		t.Error(err)
	}

	// A kernel that frees what it allocates still cannot allocate for ever.
	allocating := kernelWith(heapFunctions, "LOOP:\n"+allocate("1000000")+".param .b64 f;\n st.param.b64 [f], %rd5;\n call free, (f);\n bra LOOP;")
	err = limited(t, allocating, limit, Launch{}, Options{})
	containsAll(t, "malloc", err, "1000000 bytes of simulated memory for the allocation of thread", "64 MiB")
	empty := kernelWith(heapFunctions, "LOOP:\n"+allocate("0")+"setp.ne.u64 %p1, %rd5, 0;\n @%p1 bra LOOP;\n ret;")
	if err := limited(t, empty, 2<<30, Launch{Block: [3]int{1, 1, 1}}, Options{MaxSteps: 1 << 30}); err != nil {
		t.Error(err)
	}
}

// TestMemoryWatch tests growth that has no size before: copies that no thread waits for.
func TestMemoryWatch(t *testing.T) {
	if testing.Short() {
		t.Skip("allocates 100 MB")
	}
	copies := kernelWith(sharedArray, "LOOP:\n cp.async.ca.shared.global [s], [%rd0], 16;\n bra LOOP;")
	err := limited(t, copies, 64<<20, Launch{}, Options{})
	containsAll(t, "copies", err, "the simulation of k holds ", "the limit is 64 MiB")
}

// What the checkers remember of the bytes that a launch accesses counts: here 48 MB of 4 MB.
func TestShadowLimit(t *testing.T) {
	text := kernelWith(".global .align 4 .b8 g[4194304];", "mov.u64 %rd2, g;\n mul.wide.u32 %rd3, %r63, 4;\n add.u64 %rd2, %rd2, %rd3;\n "+
		"mov.u32 %r1, 0;\n LOOP:\n st.global.u32 [%rd2], %r1;\n add.u32 %r1, %r1, 1;\n setp.lt.u32 %p1, %r1, 4;\n @%p1 bra LOOP;\n ret;")
	launch := Launch{Grid: [3]int{1024, 1, 1}, Block: [3]int{1024, 1, 1}}
	err := limited(t, text, 40<<20, launch, Options{Checks: true})
	containsAll(t, "shadow", err, "the simulation of k holds ", "the limit is 40 MiB: what the checkers remember", "--memory MIB sets another limit")
	if err := limited(t, text, 80<<20, launch, Options{Checks: true}); err != nil {
		t.Error(err)
	}
}

// TestTimeLimit tests that a launch ends soon after its context, whatever it is doing.
func TestTimeLimit(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a loop":       kernel("LOOP:\n add.u32 %r1, %r1, 1;\n bra LOOP;"),
		"empty blocks": kernel("ret;"),
		"waiting":      kernel("LOOP:\n ld.volatile.global.u32 %r1, [%rd0];\n nanosleep.u32 1000000;\n add.u32 %r2, %r2, 1;\n bra LOOP;"),
		"pending copies": kernelWith(sharedArray, "LOOP:\n cp.async.ca.shared.global [s], [%rd0], 16;\n "+
			"cp.async.commit_group;\n cp.async.wait_group 100000000;\n bra LOOP;"),
		"printing": kernelWith(printing, printLoop),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := Load(mustParse(t, text), "")
			if err != nil {
				t.Fatal(err)
			}
			m := mem.NewMemory()
			params := append(littleEndian(buffer(t, m, "out", 4096), 8), littleEndian(buffer(t, m, "in", 4096), 8)...)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err = p.Run(ctx, m, Launch{Grid: [3]int{1<<31 - 1, 65535, 65535}, Block: [3]int{1024, 1, 1}, Params: params}, Options{Checks: true})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
			if took := time.Since(began); took > 20*time.Second { // the machine may be loaded
				t.Errorf("the launch ended after %v", took)
			}
		})
	}
}

// printing declares vprintf and a format, and printLoop prints for ever.
const (
	printing = `.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[] = {37,53,48,48,48,100,10,0};`
	printLoop = `.param .b64 f; .param .b64 a; .param .b32 n;
	mov.u64 %rd5, text;
	cvta.global.u64 %rd5, %rd5;
	st.param.b64 [f], %rd5;
	st.param.b64 [a], %rd1;
LOOP:
	call (n), vprintf, (f, a);
	add.u32 %r1, %r1, 1;
	setp.lt.u32 %p1, %r1, 1000;
	@%p1 bra LOOP;
	ret;`
)

// TestPrintfFlood prints 32000 lines of 5001 bytes in two blocks. The launch shows 1 MiB of them, and
// then says how many are missing.
func TestPrintfFlood(t *testing.T) {
	t.Parallel()
	lines, size, last := 0, 0, ""
	text := strings.Replace(kernelWith(printing, printLoop), "1000;", "100;", 1)
	simulate(t, setup{text: text, blocks: 2, threads: 16, workers: 2, in: make([]uint32, 8), printf: func(s string) {
		lines, last = lines+1, s
		size += len(s)
	}})
	if want := fmt.Sprintf("attune: %d more calls of printf are not shown: a launch prints at most 1024 KiB\n", 3200-lines+1); last != want {
		t.Errorf("the last line is %.200q, want %q", last, want)
	}
	if size < 1<<20-5001 || size > 1<<20+200 {
		t.Errorf("%d bytes in %d lines", size, lines)
	}

	// One call cannot format more than maxText bytes.
	huge := strings.Replace(kernelWith(printing, printLoop), "{37,53,48,48,48,100,10,0}",
		"{37,57,57,57,57,57,57,100,37,57,57,57,57,57,57,100,0}", 1)
	huge = strings.Replace(huge, "1000;", "1;", 1)
	simulate(t, setup{text: huge, threads: 1, in: make([]uint32, 8), printf: func(s string) {
		if len(s) != maxText {
			t.Errorf("one call prints %d bytes, want %d", len(s), maxText)
		}
	}})
}
