package profile

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
)

// recorded has ncu's figures of a stage on shape 1x8x512x64 on an H200.
func recorded(t testing.TB, stage string) Values {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", stage+".csv"))
	if err != nil {
		t.Fatal(err)
	}
	launches, err := ParseCSV(text)
	if err != nil || len(launches) != 1 || launches[0].Kernel != "sdpa" {
		t.Fatalf("%s: %v, %v", stage, launches, err)
	}
	return ValuesOf(launches[0].Counters)
}

func TestRecordedCSV(t *testing.T) {
	want := Values{
		Time: 9060, SMBusy: 22.12, DRAMBusy: 1.87, DRAMBytes: 812410, L1Busy: 15.71, L2Busy: 5.55, "l2_hit_pct": 75.82, "instructions": 1470976,
		IssueBusy: 31.73, Occupancy: 6.24, Registers: 182, Waves: 0.48, LoadUse: 30.7, StoreUse: 16, LoadConflicts: 32768, wavefronts: 204800,
		"shared_load_wavefronts": 118784, "global_sectors": 329216,
		"stall_wait": 1.06, latency: 3.19,
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(b) })
	if diff := cmp.Diff(want, recorded(t, "stage3b"), near); diff != "" {
		t.Error(diff)
	}
}

func TestParseCSV(t *testing.T) {
	check := func(name, text string, want ...Launch) {
		t.Helper()
		got, err := ParseCSV([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	launch := func(kernel string, counters device.Counters) Launch { return Launch{kernel, counters} }
	const header = `"ID","Kernel Name","gpu__time_duration.sum","dram__bytes.sum","launch__registers_per_thread"` + "\n"
	check("base units", header+`"","","ns","byte","register/thread"`+"\n"+`"0","sdpa","8096","812416","202"`+"\n",
		launch("sdpa", device.Counters{"gpu__time_duration.sum": 8096, "dram__bytes.sum": 812416, "launch__registers_per_thread": 202}))
	check("scaled units", header+`"","","us","Kbyte","register/thread"`+"\n"+`"0","sdpa","8.5","812.5","202"`+"\n",
		launch("sdpa", device.Counters{"gpu__time_duration.sum": 8500, "dram__bytes.sum": 812500, "launch__registers_per_thread": 202}))
	check("units of older releases", header+`"","","usecond","Mbyte","register/thread"`+"\n"+`"0","sdpa","8.5","1.5","202"`+"\n",
		launch("sdpa", device.Counters{"gpu__time_duration.sum": 8500, "dram__bytes.sum": 1.5e6, "launch__registers_per_thread": 202}))
	check("thousands, and no units", header+`"0","sdpa","8,096","812,416","202"`+"\n",
		launch("sdpa", device.Counters{"gpu__time_duration.sum": 8096, "dram__bytes.sum": 812416, "launch__registers_per_thread": 202}))
	check("several launches", header+`"","","ns","byte",""`+"\n"+`"0","a","1","2","3"`+"\n"+`"1","b","4","5","6"`+"\n",
		launch("a", device.Counters{"gpu__time_duration.sum": 1, "dram__bytes.sum": 2, "launch__registers_per_thread": 3}),
		launch("b", device.Counters{"gpu__time_duration.sum": 4, "dram__bytes.sum": 5, "launch__registers_per_thread": 6}))
	check("no value", header+`"0","sdpa","n/a","","CachePreferNone"`+"\n", launch("sdpa", device.Counters{}))
	check("not a finite number", header+`"0","sdpa","nan","inf","1"`+"\n", launch("sdpa", device.Counters{"launch__registers_per_thread": 1}))
	check("a line that ends early", header+`"0","sdpa","5"`+"\n", launch("sdpa", device.Counters{"gpu__time_duration.sum": 5}))
	check("ncu's messages around it",
		"==PROF== Connected to process 7\n==WARNING== Unable to access the following metrics: a.\n"+header+`"","","ns","byte",""`+"\n==PROF== 1 pass\n"+
			`"0","sdpa","1","2","3"`+"\n==PROF== Disconnected\n",
		launch("sdpa", device.Counters{"gpu__time_duration.sum": 1, "dram__bytes.sum": 2, "launch__registers_per_thread": 3}))
	check("only a header", header)
	const long = `"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"` + "\n"
	check("one metric per line", long+
		`"0","a","Command line profiler metrics","gpu__time_duration.sum","msecond","1.5"`+"\n"+
		`"0","a","Command line profiler metrics","dram__bytes.sum.per_second","Gbyte/second","100.4"`+"\n"+
		`"0","a","GPU Speed Of Light Throughput","Memory Throughput","%","14.26"`+"\n"+
		`"1","b","Command line profiler metrics","gpu__time_duration.sum","second","2"`+"\n",
		launch("a", device.Counters{"gpu__time_duration.sum": 1.5e6, "dram__bytes.sum.per_second": 100.4e9}),
		launch("b", device.Counters{"gpu__time_duration.sum": 2e9}))
}

func TestNoCSV(t *testing.T) {
	for text, want := range map[string]string{
		"":                              `there is no line that begins with "ID"`,
		"==ERROR== permission denied\n": `there is no line that begins with "ID"`,
		"ID,\"a\n":                      `read the CSV of ncu: `,
	} {
		if launches, err := ParseCSV([]byte(text)); err == nil && len(launches) > 0 || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %q", text, launches, err, want)
		}
	}
}

func FuzzParseCSV(f *testing.F) {
	for _, stage := range []string{"stage3b", "stage3c"} {
		text, err := os.ReadFile(filepath.Join("testdata", stage+".csv"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("\"ID\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\"0\",\"a__b\",\"Kbyte\",\"1,5\"\n"))
	f.Add([]byte("ID\n\n\"\"\n==\n0"))
	f.Fuzz(func(t *testing.T, text []byte) {
		launches, err := ParseCSV(text)
		if err != nil {
			return
		}
		for _, l := range launches {
			for name, value := range l.Counters {
				if !strings.Contains(name, "__") && !strings.HasPrefix(name, sourcePrefix) || math.IsNaN(value) {
					t.Errorf("%q is %g", name, value)
				}
			}
			ValuesOf(l.Counters)
		}
	})
}
