package toolchain

import (
	"bytes"
	"debug/elf"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the logs in testdata/ptxas with the pinned compiler")

// realLogs are logs of the pinned ptxas: their sources and flags, and the resources as read by
// hand.
var realLogs = []struct {
	log, source, arch string
	flags             []string
	want              map[string]Resources
}{
	{
		log: "merged.sm_89.log", source: "merged.cu", arch: "sm_89",
		want: map[string]Resources{
			"first":  {Registers: 42, Barriers: 1, StackBytes: 208, StaticSharedBytes: 1024, ConstantBytes: 372},
			"second": {Registers: 48, Barriers: 4, StackBytes: 400, StaticSharedBytes: 2048, ConstantBytes: 372},
			"third":  {Registers: 8, ConstantBytes: 360},
		},
	},
	{
		log: "merged.sm_90a.log", source: "merged.cu", arch: "sm_90a", // without constant banks
		want: map[string]Resources{
			"first":  {Registers: 32, Barriers: 1, StackBytes: 208, StaticSharedBytes: 1024},
			"second": {Registers: 40, Barriers: 4, StackBytes: 400, StaticSharedBytes: 2048},
			"third":  {Registers: 10},
		},
	},
	{
		log: "called.sm_89.log", source: "called.cu", arch: "sm_89",
		want: map[string]Resources{
			"first": {
				Registers: 80, Barriers: 1, StackBytes: 160, StaticSharedBytes: 1024, ConstantBytes: 372 + 24,
				SpillStoreBytes: 136 + 156, SpillLoadBytes: 136 + 156,
			},
			"second": {
				Registers: 80, StackBytes: 160, ConstantBytes: 372 + 24, SpillStoreBytes: 136 + 156, SpillLoadBytes: 136 + 156,
			},
			"alone":  {Registers: 80, ConstantBytes: 372},
			"circle": {Registers: 29, StackBytes: 104, ConstantBytes: 372, SpillStoreBytes: 44 + 20, SpillLoadBytes: 44 + 20},
		},
	},
	{
		log: "called.sm_89.maxrregcount.log", source: "called.cu", arch: "sm_89", flags: []string{"-maxrregcount=24"},
		want: map[string]Resources{
			"first": {
				Registers: 24, Barriers: 1, StackBytes: 264, StaticSharedBytes: 1024, ConstantBytes: 372 + 24,
				SpillStoreBytes: 248 + 276, SpillLoadBytes: 604 + 1248,
			},
			"second": {
				Registers: 24, StackBytes: 264, ConstantBytes: 372 + 24, SpillStoreBytes: 248 + 276, SpillLoadBytes: 604 + 1248,
			},
			"alone":  {Registers: 24, StackBytes: 792, ConstantBytes: 372, SpillStoreBytes: 984, SpillLoadBytes: 2448},
			"circle": {Registers: 24, StackBytes: 88, ConstantBytes: 372, SpillStoreBytes: 32 + 20, SpillLoadBytes: 32 + 20},
		},
	},
}

func logFile(name string) string { return filepath.Join("testdata", "ptxas", name) }

func readLog(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(logFile(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPtxasLogs(t *testing.T) {
	for _, c := range realLogs {
		t.Run(c.log, func(t *testing.T) {
			if diff := cmp.Diff(c.want, parsePtxasLog(readLog(t, c.log))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPtxasLogsOfOtherReleases(t *testing.T) {
	const head = "ptxas info    : Compiling entry function 'sdpa' for 'sm_80'\n" +
		"ptxas info    : Function properties for sdpa\n"
	for _, c := range []struct {
		name, log string
		want      Resources
	}{
		{
			"barriers and cumulative stack",
			head + "    800 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n" +
				"ptxas info    : Used 84 registers, used 1 barriers, 800 bytes cumulative stack size, 37120 bytes smem, " +
				"400 bytes cmem[0], 8 bytes cmem[2]\n",
			Resources{
				Registers: 84, Barriers: 1, StackBytes: 800, StaticSharedBytes: 37120, ConstantBytes: 408,
				SpillStoreBytes: 12, SpillLoadBytes: 16,
			},
		},
		{
			"neither",
			head + "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n" +
				"ptxas info    : Used 96 registers, 27136 bytes smem, 400 bytes cmem[0]\n",
			Resources{Registers: 96, StaticSharedBytes: 27136, ConstantBytes: 400},
		},
		{
			"shared memory in two parts",
			head + "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n" +
				"ptxas info    : Used 10 registers, 4096+16 bytes smem, 4 bytes cmem[1]\n",
			Resources{Registers: 10, StaticSharedBytes: 4112, ConstantBytes: 4},
		},
		{
			"a called function between the entry and its registers",
			head + "    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n" +
				"ptxas info    : Function properties for _Z4calli\n" +
				"    32 bytes stack frame, 28 bytes spill stores, 20 bytes spill loads\n" +
				"ptxas info    : Used 16 registers, 40 bytes cumulative stack size\n",
			Resources{Registers: 16, StackBytes: 40, SpillStoreBytes: 32, SpillLoadBytes: 24},
		},
		{
			"other lines around it",
			"sdpa.cu(3): warning #177-D: variable \"x\" was declared but never referenced\n" +
				"ptxas info    : 12 bytes gmem, 8 bytes cmem[4]\n" + head +
				"    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n" +
				"ptxas info    : Used 64 registers, used 1 barriers, 27136 bytes smem, 424 bytes cmem[0]\n" +
				"ptxas info    : Compile time = 41.910 ms\n" +
				"ptxas info    : 0 bytes gmem, 16 bytes cmem[3]\n", // of the next module
			Resources{Registers: 64, Barriers: 1, StaticSharedBytes: 27136, ConstantBytes: 424},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(map[string]Resources{"sdpa": c.want}, parsePtxasLog(c.log)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := parsePtxasLog("ptxas info    : 0 bytes gmem\nptxas info    : Used 10 registers\n"); len(got) != 0 {
		t.Errorf("a log without entries parses to %v", got)
	}
}

func TestResourceSums(t *testing.T) {
	r := Resources{StaticSharedBytes: 1, DynamicSharedBytes: 20, SpillStoreBytes: 300, SpillLoadBytes: 4000}
	if r.SharedBytes() != 21 || r.SpillBytes() != 4300 {
		t.Errorf("%d bytes of shared memory and %d of spill, want 21 and 4300", r.SharedBytes(), r.SpillBytes())
	}
}

// verbose runs ptxas -v and returns its log and the machine code.
func verbose(t testing.TB, c *Compiler, ptx, arch string, flags ...string) (log string, cubin []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "out.cubin")
	args := append([]string{"-v", "-arch=" + arch, "-o", file, ptx}, flags...)
	out, err := exec.CommandContext(t.Context(), c.PTXAS, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if cubin, err = os.ReadFile(file); err != nil {
		t.Fatal(err)
	}
	return string(out), cubin
}

// The pinned ptxas prints the logs in testdata. The spills in them, with those of called functions,
// agree with the instructions of the machine code.
func TestPtxasLogsAreCurrent(t *testing.T) {
	compiler := pinned(t)
	ptx := map[string]string{}
	for _, c := range realLogs {
		t.Run(c.log, func(t *testing.T) {
			key := c.source + c.arch
			if ptx[key] == "" {
				file := ptxFrom(t, compiler, logFile(c.source), c.arch)
				ptx[key] = readFile(t, file)
			}
			file := filepath.Join(t.TempDir(), "in.ptx")
			if err := os.WriteFile(file, []byte(ptx[key]), 0o644); err != nil {
				t.Fatal(err)
			}
			log, cubin := verbose(t, compiler, file, c.arch, c.flags...)
			log = withoutTimes(log)
			if *update {
				if err := os.WriteFile(logFile(c.log), []byte(log), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(readLog(t, c.log), log); diff != "" {
				t.Errorf("ptxas prints another log; -update rewrites it (-testdata +ptxas):\n%s", diff)
			}
			stores, loads := localAccesses(t, compiler, cubin)
			for entry, r := range parsePtxasLog(log) {
				if entry == "circle" || c.source == "merged.cu" {
					continue // local arrays are accessed in the same way as spills
				}
				if stores[entry] != r.SpillStoreBytes || loads[entry] != r.SpillLoadBytes {
					t.Errorf("%s: the code spills %d bytes and loads %d, the log has %d and %d",
						entry, stores[entry], loads[entry], r.SpillStoreBytes, r.SpillLoadBytes)
				}
			}
		})
	}
}

var (
	textLabel   = regexp.MustCompile(`(?m)^\.text\.(\w+):`)
	localAccess = regexp.MustCompile(`\b(STL|LDL)(?:\.LU)?(?:\.(64|128))? `)
)

// localAccesses are the bytes that the instructions of each entry store to and load from local
// memory.
func localAccesses(t testing.TB, c *Compiler, cubin []byte) (stores, loads map[string]int) {
	t.Helper()
	text, err := Disassemble(t.Context(), c, cubin)
	if err != nil {
		t.Fatal(err)
	}
	stores, loads = map[string]int{}, map[string]int{}
	entry := ""
	for line := range strings.Lines(text) {
		if m := textLabel.FindStringSubmatch(line); m != nil {
			entry = m[1]
		}
		m := localAccess.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		size := 4
		if m[2] != "" {
			size = atoi(m[2]) / 8
		}
		if m[1] == "STL" {
			stores[entry] += size
		} else {
			loads[entry] += size
		}
	}
	return stores, loads
}

// checkRecord compares a build's record with ptxas, parsed here in another way, and with the
// headers of the machine code.
func checkRecord(t *testing.T, compiler *Compiler, kernel *Builder, target Target, spills bool) {
	t.Helper()
	image, _ := mustBuild(t, kernel, target)
	ptx := filepath.Join(t.TempDir(), "in.ptx")
	if err := os.WriteFile(ptx, image.PTX, 0o644); err != nil {
		t.Fatal(err)
	}
	log, _ := verbose(t, compiler, ptx, target.Arch, "--generate-line-info")
	if diff := cmp.Diff(withoutTimes(log), image.Log); diff != "" {
		t.Errorf("%s: log (-ptxas +image):\n%s", target, diff)
	}
	registers, shared := fromELF(t, image.Cubin, target.Kernel)
	got := image.Record.Resources
	want := Resources{
		Registers:          amount(log, "registers"),
		StaticSharedBytes:  amount(log, "bytes", "smem"),
		DynamicSharedBytes: image.Record.Launch.DynamicSharedBytes,
		SpillStoreBytes:    amount(log, "bytes", "spill", "stores"),
		SpillLoadBytes:     amount(log, "bytes", "spill", "loads"),
		StackBytes:         amount(log, "bytes", "stack", "frame"),
		Barriers:           amount(log, "barriers"),
		ConstantBytes:      amount(log, "bytes", "cmem[0]"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-ptxas +record):\n%s", target, diff)
	}
	if registers != got.Registers || shared != got.StaticSharedBytes {
		t.Errorf("%s: the machine code has %d registers and %d bytes of shared memory, the record %d and %d",
			target, registers, shared, got.Registers, got.StaticSharedBytes)
	}
	if got.Registers == 0 || got.StaticSharedBytes == 0 || spills != (got.SpillBytes() > 0) {
		t.Errorf("%s: %+v, want registers, shared memory and spills: %v", target, got, spills)
	}
}

func TestRecordAgreesWithPtxas(t *testing.T) {
	compiler := pinned(t)
	list, err := ReadShipped(sdpa(t))
	if err != nil {
		t.Fatal(err)
	}
	stage := list.Images[slices.IndexFunc(list.Images, func(s ShippedImage) bool {
		return s.Record.Variant == "stage2" && s.Record.Arch == "sm_89"
	})].Record
	checkRecord(t, compiler, NewBuilder(sdpa(t), compiler, t.TempDir()),
		Target{Kernel: "sdpa", Variant: "stage2", Source: stage.Source, Arch: "sm_89", Knobs: stage.Knobs, Contract: true}, false)

	spilling := with(tiny(), "ada/tiny.cu", `#include "../common/launch.cuh"
ATTUNE_LAUNCH(1024, 16, 4096);
extern "C" __global__ void __launch_bounds__(1024, 2) tiny(float* out, const float* x, int n) {
  __shared__ float tile[1024];
  float v[SCALE];
#pragma unroll
  for (int i = 0; i < SCALE; ++i) v[i] = x[i * n];
  tile[threadIdx.x] = v[0];
  __syncthreads();
  float sum = tile[n];
#pragma unroll
  for (int i = 0; i < SCALE; ++i)
#pragma unroll
    for (int j = 0; j < SCALE; j += 3) sum += v[i] * v[(i + j) % SCALE] + x[j];
  out[threadIdx.x] = sum;
}
`)
	target := tinyTarget()
	target.Knobs = map[string]int{"SCALE": 48}
	checkRecord(t, compiler, NewBuilder(spilling, compiler, t.TempDir()), target, true)
}

// amount finds the number before the given words in a log.
func amount(log string, words ...string) int {
	fields := strings.Fields(strings.ReplaceAll(log, ",", " "))
	for i := 1; i+len(words) <= len(fields); i++ {
		if n, err := strconv.Atoi(fields[i-1]); err == nil && slices.Equal(fields[i:i+len(words)], words) {
			return n
		}
	}
	return 0
}

// fromELF reads an entry's resources from the section headers, as the driver does.
func fromELF(t testing.TB, cubin []byte, entry string) (registers, shared int) {
	t.Helper()
	file, err := elf.NewFile(bytes.NewReader(cubin))
	if err != nil {
		t.Fatal(err)
	}
	if text := file.Section(".text." + entry); text != nil {
		registers = int(text.Info >> 24)
	}
	if s := file.Section(".nv.shared." + entry); s != nil {
		shared = int(s.Size)
	}
	return registers, shared
}

func FuzzPtxasLog(f *testing.F) {
	for _, c := range realLogs {
		f.Add(readLog(f, c.log))
	}
	f.Add("Compiling entry function 'a' for 'b'\nused 99999999999999999999 barriers, 9223372036854775807+1 bytes smem\n" +
		"9223372036854775807 bytes spill stores\n9223372036854775807 bytes spill stores\n")
	f.Add("Compiling entry function 'a' for 'b'\nFunction properties for a\nFunction properties for b\n9 bytes spill loads")
	f.Fuzz(func(t *testing.T, log string) {
		for entry, r := range parsePtxasLog(log) {
			if !strings.Contains(log, "'"+entry+"'") {
				t.Errorf("entry %q is not in the log", entry)
			}
			fields := reflect.ValueOf(r)
			for i := range fields.NumField() {
				if n := fields.Field(i).Int(); n < 0 {
					t.Errorf("%s: %s is %d", entry, fields.Type().Field(i).Name, n)
				}
			}
			if r.SharedBytes() < 0 || r.SpillBytes() < 0 {
				t.Errorf("%s: %d bytes of shared memory and %d of spill", entry, r.SharedBytes(), r.SpillBytes())
			}
		}
	})
}
