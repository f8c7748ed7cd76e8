//go:build linux

package cases_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"attune/internal/cases"
	"attune/internal/device"
	"attune/internal/device/cuda"
	"attune/internal/device/isolate"
	simdevice "attune/internal/device/sim"
	"attune/internal/finding"
)

var (
	casePattern = flag.String("case", "", "run the cases in the files that match `pattern` on the GPU, instead of all in testdata")
	update      = flag.Bool("update", false, "write the output of the GPU into the files that -case names")
)

// serverArg makes this test binary serve the first GPU to its parent process, as attune does.
const serverArg = "cases-test-server"

func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != serverArg {
		os.Exit(m.Run())
	}
	if err := isolate.Serve(func() (device.Machine, error) { return cuda.Open(0) }); err != nil {
		os.Exit(1)
	}
}

// TestOnGPU compares a real GPU with the expected results of the cases. With -update it writes the
// GPU's output into the cases that -case names. It skips defective kernels, because they hang. A
// case that crashes the GPU's process fails alone.
func TestOnGPU(t *testing.T) {
	if *update && *casePattern == "" {
		t.Fatal("-update rewrites cases; name them with -case, as in -case 'testdata/more/tma_*.json'")
	}
	gpu := &gpuDevice{}
	facts, err := gpu.open(t.Context())
	if errors.Is(err, device.ErrNoDevice) {
		t.Skip(err) // the message starts with "no GPU: "
	}
	if err != nil {
		t.Fatal(err)
	}
	defer gpu.close()
	ran := 0
	for _, file := range caseFiles(t) {
		c, err := cases.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		if isDefect(c) {
			continue
		}
		ran++
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			if !runsOn(c.Arch, facts.Arch) {
				t.Skipf("the case needs %s; %s is %s", c.Arch, facts.Name, facts.Arch)
			}
			if !*update {
				compareCase(t, gpu, c)
			} else if err := recordCase(t.Context(), gpu, facts, file, c); err != nil {
				t.Error(err)
			} else {
				t.Logf("%s now expects the output of %s", file, facts.Name)
			}
		})
	}
	if ran == 0 {
		t.Errorf("no case to run on a GPU in %q", *casePattern)
	}
}

// caseFiles returns the files that -case names, or all cases.
func caseFiles(t *testing.T) []string {
	patterns := []string{"testdata/recorded/*.json", "testdata/more/*.json", "testdata/defects/*.json"}
	if *casePattern != "" {
		patterns = []string{*casePattern}
	}
	var files []string
	for _, p := range patterns {
		found, err := filepath.Glob(p)
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		if len(found) == 0 {
			t.Fatalf("no case in %s", p)
		}
		files = append(files, found...)
	}
	return files
}

// isDefect reports whether a checker must find something. What it may report in addition is no defect:
// such a case still has an output that a GPU can be compared with.
func isDefect(c *cases.Case) bool {
	return len(c.Expect.Findings)+len(c.Expect.Or) > 0
}

// runsOn reports whether PTX for an architecture runs on a GPU. PTX for an architecture with suffix
// a runs on that architecture only, other PTX on all later ones.
func runsOn(ptx, chip string) bool {
	number := func(arch string) int {
		n, _ := strconv.Atoi(strings.TrimPrefix(arch, "sm_")) // 0 if malformed
		return n
	}
	if own, ok := strings.CutSuffix(ptx, "a"); ok {
		return own == chip
	}
	return number(ptx) > 0 && number(ptx) <= number(chip)
}

// fills are the initial contents of uninitialised buffers. They differ, so bytes that a kernel does
// not write are detected.
var fills = []byte{0xFF, 0x00}

// jobRunner is a device that runs jobs.
type jobRunner interface {
	Run(ctx context.Context, job device.Job) (*device.Outcome, error)
}

// runJob runs a case as a job and returns its buffers. Findings of the guard are errors.
func runJob(ctx context.Context, d jobRunner, c *cases.Case, fill byte) ([][]byte, error) {
	job, err := c.Job(fill)
	if err != nil {
		return nil, err
	}
	outcome, err := d.Run(ctx, job)
	if err != nil {
		return nil, err
	}
	for _, f := range outcome.Findings {
		if f.Kind != finding.NotRepeatable { // buffers that the case does not compare may vary
			return nil, errors.New(f.String())
		}
	}
	return outcome.Outputs, nil
}

func compareCase(t *testing.T, d jobRunner, c *cases.Case) {
	t.Helper()
	for _, fill := range fills {
		outputs, err := runJob(t.Context(), d, c, fill)
		if err != nil {
			t.Fatal(err)
		}
		mismatches, err := c.Mismatches(outputs)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mismatches {
			t.Errorf("unwritten memory %#02x: %s", fill, m)
		}
	}
}

// recordCase stores the output of a device as the expected result of a case. Two runs must agree.
func recordCase(ctx context.Context, d jobRunner, facts device.Facts, file string, c *cases.Case) error {
	var first map[string][]byte
	for _, fill := range fills {
		outputs, err := runJob(ctx, d, c, fill)
		if err != nil {
			return err
		}
		parts, err := c.Expected(outputs)
		if err != nil {
			return err
		}
		if first == nil {
			first = parts
		}
		for _, name := range slices.Sorted(maps.Keys(parts)) {
			if !slices.Equal(first[name], parts[name]) {
				return fmt.Errorf("%s: argument %s differs between two runs, or the kernel does not write all of it", file, name)
			}
		}
	}
	return cases.Record(file, first, hardwareRecord(facts))
}

// hardwareRecord describes the GPU from which recorded bytes come.
func hardwareRecord(f device.Facts) any {
	driver, version, _ := strings.Cut(f.Driver, ", CUDA ")
	n := len(f.Arch) - 1
	return struct {
		Device string `json:"device"`
		Driver string `json:"driver"`
		CUDA   string `json:"cuda"`
		SM     string `json:"sm"`
	}{f.Name, driver, version, strings.TrimPrefix(f.Arch[:n], "sm_") + "." + f.Arch[n:]}
}

// gpuDevice is a GPU in a child process. After an error it starts a new child, because the old one
// may be unusable.
type gpuDevice struct {
	device *isolate.Device
}

func (c *gpuDevice) open(ctx context.Context) (device.Facts, error) {
	self, err := os.Executable()
	if err != nil {
		return device.Facts{}, err
	}
	const limit = time.Minute // per job
	d, err := isolate.Start(ctx, isolate.Options{Command: []string{self, serverArg}, Limit: limit, Stderr: os.Stderr})
	if err != nil {
		return device.Facts{}, err
	}
	c.device = d
	return d.Facts(), nil
}

func (c *gpuDevice) Run(ctx context.Context, job device.Job) (*device.Outcome, error) {
	if c.device == nil {
		if _, err := c.open(ctx); err != nil {
			return nil, err
		}
	}
	outcome, err := c.device.Run(ctx, job)
	if err != nil {
		c.close()
	}
	return outcome, err
}

func (c *gpuDevice) close() {
	if c.device != nil {
		c.device.Close()
		c.device = nil
	}
}

// resident is a device on which all blocks of a launch are resident. A case cannot say that its launch
// is cooperative, and those with a barrier of the grid need it.
type resident struct{ device.Device }

func (d resident) Run(ctx context.Context, job device.Job) (*device.Outcome, error) {
	job.Cooperative = true
	return d.Device.Run(ctx, job)
}

// TestCasesAsJobs runs the cases as jobs on the simulator, the same path that a GPU uses. Under -short
// it runs every tenth; the other tests run every case.
func TestCasesAsJobs(t *testing.T) {
	t.Parallel()
	d := resident{simdevice.Open(simdevice.Options{Checks: true})}
	for i, file := range caseFiles(t) {
		if testing.Short() && i%10 != 0 {
			continue
		}
		c, err := cases.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		if !isDefect(c) {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) { compareCase(t, d, c) })
		}
	}
}

func TestRunsOn(t *testing.T) {
	for _, c := range []struct {
		ptx, chip string
		want      bool
	}{
		{"sm_80", "sm_90", true},
		{"sm_90", "sm_90", true},
		{"sm_90", "sm_89", false},
		{"sm_90", "sm_100", true},
		{"sm_90a", "sm_90", true},
		{"sm_90a", "sm_100", false},
		{"", "sm_90", false},
	} {
		if got := runsOn(c.ptx, c.chip); got != c.want {
			t.Errorf("PTX for %q on %s: %t", c.ptx, c.chip, got)
		}
	}
}

// recordTemplate is a case with placeholders for the expected bytes and the hardware.
const recordTemplate = `{
 "name": "recording",
 "ptx": "k.ptx",
 "arch": "sm_80",
 "entry": "k",
 "grid": [
  1
 ],
 "block": [
  8
 ],
 "args": [
  {
   "hex": "0100000002000000030000000400000005000000060000000700000008000000"
  },
  {
   "bytes": 32
  },
  {
   "u32": 3
  }
 ],
 "expect": {
  "args": {
   "1": {
    "hex": "BUFFER",
    "ulp_f32": 1
   }
  },
  "findings": []
 },
 "about": "a \u00e9 and <b>"HW
}
`

// TestRecord checks that Record writes the output of a device and changes nothing else in the file.
func TestRecord(t *testing.T) {
	d := simdevice.Open(simdevice.Options{})
	facts := device.Facts{Name: "A GPU", Driver: "580.1, CUDA 13.0", Arch: "sm_90"}
	const hw = ",\n \"hw\": {\n  \"device\": \"A GPU\",\n  \"driver\": \"580.1\",\n  \"cuda\": \"13.0\",\n  \"sm\": \"9.0\"\n }"
	check := func(ptx, have, want string) error {
		t.Helper()
		folder := t.TempDir()
		with := func(buffer, hw string) string {
			return strings.NewReplacer("BUFFER", buffer, "HW", hw).Replace(recordTemplate)
		}
		file := writeCase(t, folder, with(have, ""))
		if err := os.WriteFile(filepath.Join(folder, "k.ptx"), []byte(ptx), 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := cases.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := recordCase(t.Context(), d, facts, file, c); err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(with(want, hw), string(text)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	}
	all := "0400000005000000060000000700000008000000090000000a0000000b000000"
	for have, want := range map[string]string{strings.Repeat("00", 32): all, "": all, "0000000000000000": all[:16]} {
		if err := check(copyPTX, have, want); err != nil {
			t.Error(err)
		}
	}
	half := strings.Replace(copyPTX, "mov.u32 %r2, %tid.x;", "mov.u32 %r2, %tid.x;\n\tand.b32 %r2, %r2, 3;", 1)
	if err := check(half, "", all); err == nil || !strings.Contains(err.Error(), "argument 1 differs between two runs, or the kernel does not write all of it") {
		t.Errorf("a kernel that writes half of its output: error %v", err)
	}
	if err := check(half, strings.Repeat("00", 16), all[:32]); err != nil {
		t.Errorf("a case that compares the first half only: %v", err)
	}
}

// TestRecordKeepsFormatting checks that the recorded cases have the formatting of Record.
func TestRecordKeepsFormatting(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	files, err := filepath.Glob("testdata/recorded/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c, err := cases.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(t.TempDir(), "case.json")
		if err := os.WriteFile(copied, text, 0o644); err != nil {
			t.Fatal(err)
		}
		f := device.Facts{Name: "NVIDIA H200", Driver: fmt.Sprintf("%v, CUDA %v", c.HW["driver"], c.HW["cuda"]), Arch: "sm_90"}
		if err := cases.Record(copied, nil, hardwareRecord(f)); err != nil {
			t.Fatal(err)
		}
		if rewritten, err := os.ReadFile(copied); err != nil || string(rewritten) != string(text) {
			t.Errorf("%s has another formatting: %v", file, err)
		}
	}
}
