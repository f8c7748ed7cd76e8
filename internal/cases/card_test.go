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
)

var (
	which  = flag.String("case", "", "run the cases in the files of this `pattern` on the GPU, in place of all in testdata")
	update = flag.Bool("update", false, "write what the GPU gives into the files that -case names")
)

// serverArg makes this test binary serve the first GPU to its parent, as attune does.
const serverArg = "cases-test-server"

func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != serverArg {
		os.Exit(m.Run())
	}
	if err := isolate.Serve(func() (device.Machine, error) { return cuda.Open(0) }); err != nil {
		os.Exit(1)
	}
}

// TestOnTheCard holds a real GPU against what the cases expect, and with -update writes into the cases that -case names what it gives. Defects are
// left alone: they hang. A case that takes the GPU's process with it fails alone.
func TestOnTheCard(t *testing.T) {
	if *update && *which == "" {
		t.Fatal("-update rewrites cases; say which, as in -case 'testdata/more/tma_*.json'")
	}
	gpu := &card{}
	facts, err := gpu.open(t.Context())
	if errors.Is(err, device.ErrNoDevice) {
		t.Skip(err) // it begins with "no GPU: "
	}
	if err != nil {
		t.Fatal(err)
	}
	defer gpu.close()
	ran := 0
	for _, file := range cardFiles(t) {
		c, err := cases.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		if isDefect(c) {
			continue
		}
		ran++
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			if !runs(c.Arch, facts.Arch) {
				t.Skipf("it is for %s, and %s is %s", c.Arch, facts.Name, facts.Arch)
			}
			if !*update {
				compare(t, gpu, c)
			} else if err := record(t.Context(), gpu, facts, file, c); err != nil {
				t.Error(err)
			} else {
				t.Logf("%s now expects what %s gives", file, facts.Name)
			}
		})
	}
	if ran == 0 {
		t.Errorf("there is no case to be run on a GPU in %q", *which)
	}
}

// cardFiles is the cases to run: those that were named, or all there are.
func cardFiles(t *testing.T) []string {
	patterns := []string{"testdata/recorded/*.json", "testdata/more/*.json", "testdata/defects/*.json"}
	if *which != "" {
		patterns = []string{*which}
	}
	var files []string
	for _, p := range patterns {
		found, err := filepath.Glob(p)
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		files = append(files, found...)
	}
	return files
}

func isDefect(c *cases.Case) bool {
	return len(c.Expect.Findings)+len(c.Expect.Or)+len(c.Expect.Also) > 0
}

// runs says whether PTX for an architecture is for a chip: one that ends in a is for no other, the rest for all that came after.
func runs(ptx, chip string) bool {
	number := func(arch string) int {
		n, _ := strconv.Atoi(strings.TrimPrefix(arch, "sm_")) // 0 for what is no number
		return n
	}
	if own, ok := strings.CutSuffix(ptx, "a"); ok {
		return own == chip
	}
	return number(ptx) > 0 && number(ptx) <= number(chip)
}

// fills are what buffers that nobody has written hold before a run. What a kernel leaves out is seen because they differ.
var fills = []byte{0xFF, 0x00}

// runner is what runs jobs.
type runner interface {
	Run(ctx context.Context, job device.Job) (*device.Outcome, error)
}

// give runs a case as a job and gives its buffers. What it does outside of them is an error.
func give(ctx context.Context, d runner, c *cases.Case, fill byte) ([][]byte, error) {
	job, err := c.Job(fill)
	if err != nil {
		return nil, err
	}
	outcome, err := d.Run(ctx, job)
	if err != nil {
		return nil, err
	}
	for _, f := range outcome.Findings {
		if f.Kind != device.NotRepeatable { // a buffer that the case says nothing of may be anything
			return nil, fmt.Errorf("%s: %s", f.Kind, f.Text)
		}
	}
	return outcome.Outputs, nil
}

func compare(t *testing.T, d runner, c *cases.Case) {
	t.Helper()
	for _, fill := range fills {
		outputs, err := give(t.Context(), d, c, fill)
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

// record makes what a device gives what a case expects. It must give the same twice.
func record(ctx context.Context, d runner, facts device.Facts, file string, c *cases.Case) error {
	var first map[string][]byte
	for _, fill := range fills {
		outputs, err := give(ctx, d, c, fill)
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
				return fmt.Errorf("%s: argument %s differs between two runs, or is not written whole", file, name)
			}
		}
	}
	return cases.Record(file, first, hardware(facts))
}

// hardware says of a case where its bytes come from.
func hardware(f device.Facts) any {
	driver, version, _ := strings.Cut(f.Driver, ", CUDA ")
	n := len(f.Arch) - 1
	return struct {
		Device string `json:"device"`
		Driver string `json:"driver"`
		CUDA   string `json:"cuda"`
		SM     string `json:"sm"`
	}{f.Name, driver, version, strings.TrimPrefix(f.Arch[:n], "sm_") + "." + f.Arch[n:]}
}

// card is a GPU in a child process. After an error there is another child: the first may be of no further use.
type card struct {
	device *isolate.Device
}

func (c *card) open(ctx context.Context) (device.Facts, error) {
	self, err := os.Executable()
	if err != nil {
		return device.Facts{}, err
	}
	const limit = time.Minute // for one job
	d, err := isolate.Start(ctx, isolate.Options{Command: []string{self, serverArg}, Limit: limit, Stderr: os.Stderr})
	if err != nil {
		return device.Facts{}, err
	}
	c.device = d
	return d.Facts(), nil
}

func (c *card) Run(ctx context.Context, job device.Job) (*device.Outcome, error) {
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

func (c *card) close() {
	if c.device != nil {
		c.device.Close()
		c.device = nil
	}
}

// The simulator gives what a case expects also when the case is run as a job, which is how a GPU runs it.
func TestAsJobs(t *testing.T) {
	t.Parallel()
	d := simdevice.Open(simdevice.Options{Checks: true})
	ran := 0
	for _, file := range cardFiles(t) {
		c, err := cases.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		if !isDefect(c) {
			ran++
			t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) { compare(t, d, c) })
		}
	}
	if want := 289 + 51 + 21; ran != want && *which == "" {
		t.Errorf("%d cases are none of a defect; want %d", ran, want)
	}
}

func TestRuns(t *testing.T) {
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
		if got := runs(c.ptx, c.chip); got != c.want {
			t.Errorf("PTX for %q on %s: %t", c.ptx, c.chip, got)
		}
	}
}

// recording is a case whose second argument is expected to be something else, and the first eight bytes of its third.
const recording = `{
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

// What a device gives goes into the file, and nothing else in it changes.
func TestRecordACase(t *testing.T) {
	d := simdevice.Open(simdevice.Options{})
	facts := device.Facts{Name: "A GPU", Driver: "580.1, CUDA 13.0", Arch: "sm_90"}
	const hw = ",\n \"hw\": {\n  \"device\": \"A GPU\",\n  \"driver\": \"580.1\",\n  \"cuda\": \"13.0\",\n  \"sm\": \"9.0\"\n }"
	check := func(ptx, have, want string) error {
		t.Helper()
		folder := t.TempDir()
		with := func(buffer, hw string) string {
			return strings.NewReplacer("BUFFER", buffer, "HW", hw).Replace(recording)
		}
		file := write(t, folder, with(have, ""))
		if err := os.WriteFile(filepath.Join(folder, "k.ptx"), []byte(ptx), 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := cases.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := record(t.Context(), d, facts, file, c); err != nil {
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
	if err := check(half, "", all); err == nil || !strings.Contains(err.Error(), "argument 1 differs between two runs, or is not written whole") {
		t.Errorf("a kernel that leaves half of its output out gives %v", err)
	}
	if err := check(half, strings.Repeat("00", 16), all[:32]); err != nil {
		t.Errorf("a case that speaks of the first half only: %v", err)
	}
}

// The recorded cases are written the way Record writes.
func TestRecordChangesNothing(t *testing.T) {
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
		if err := cases.Record(copied, nil, hardware(f)); err != nil {
			t.Fatal(err)
		}
		if again, err := os.ReadFile(copied); err != nil || string(again) != string(text) {
			t.Errorf("%s is written in another way: %v", file, err)
		}
	}
}
