package cuda

import (
	"errors"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"

	"attune/internal/device"
	"attune/internal/device/isolate"
)

// serverArg makes this test binary serve the first GPU to its parent, as attune does.
const serverArg = "cuda-test-server"

func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != serverArg {
		os.Exit(m.Run())
	}
	if err := isolate.Serve(func() (device.Machine, error) { return Open(0) }); err != nil {
		os.Exit(1)
	}
}

// Several threads call at once, because dlerror is per thread.
func TestNoDriver(t *testing.T) {
	if _, err := loadDriver(); err == nil {
		t.Skip("there is a driver here")
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			m, err := Open(0)
			if m != nil || !errors.Is(err, device.ErrNoDevice) {
				t.Errorf("got %v, %v; want ErrNoDevice", m, err)
			} else if !strings.HasPrefix(err.Error(), "no GPU: ") || !strings.Contains(err.Error(), library) {
				t.Errorf("%q does not name %s as missing", err, library)
			}
		})
	}
	all.Wait()
}

// Each field of a library is bound to the function of its name.
func TestEntries(t *testing.T) {
	d, n := &driver{}, &nvml{}
	checkEntries(t, d, d.entries())
	checkEntries(t, n, n.entries())
}

func checkEntries(t *testing.T, library any, entries []entry) {
	t.Helper()
	into := map[string]any{}
	for _, e := range entries {
		if into[e.name] != nil {
			t.Errorf("%s is listed twice", e.name)
		}
		into[e.name] = e.into
	}
	fields := reflect.ValueOf(library).Elem()
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Name
		switch got := into[name]; {
		case got == nil:
			t.Errorf("%s is not listed", name)
		case reflect.ValueOf(got).Pointer() != fields.Field(i).Addr().Pointer():
			t.Errorf("%s is bound to another field", name)
		}
		delete(into, name)
	}
	for name := range into {
		t.Errorf("%s is listed but is not a field", name)
	}
}

// No function has an argument that calls without cgo get wrong: see the package comment.
func TestEntriesAreSafeWithoutCgo(t *testing.T) {
	for _, functions := range []reflect.Type{reflect.TypeFor[driver](), reflect.TypeFor[nvml]()} {
		for i := range functions.NumField() {
			f := functions.Field(i)
			if f.Type.IsVariadic() {
				t.Errorf("%s is variadic", f.Name)
			}
			if out := f.Type.Out(0); f.Type.NumOut() != 1 || out != reflect.TypeFor[result]() && f.Name != "nvmlErrorString" {
				t.Errorf("%s does not return a result", f.Name)
			}
			for arg := range f.Type.Ins() {
				switch arg.Kind() {
				case reflect.Int32, reflect.Uint32, reflect.Uint64, reflect.Uintptr, reflect.Pointer, reflect.UnsafePointer, reflect.String:
				default:
					t.Errorf("%s takes %s by value", f.Name, arg)
				}
			}
		}
	}
}

func TestDriverRelease(t *testing.T) {
	for _, c := range []struct {
		module string
		cuda   int32
		want   string
	}{
		{"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs-builder@U22-I3)  Tue\n" +
			"GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n", 13000, "580.159.04, CUDA 13.0"},
		{"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n" +
			"GCC version:  gcc version 11.4.0\n", 12020, "535.104.05, CUDA 12.2"},
		{"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  570.86.15  Release Build\n", 12080, "570.86.15, CUDA 12.8"},
		{"NVRM version: NVIDIA UNIX x86_64 Kernel Module  610.43  Mon\n", 13010, "610.43, CUDA 13.1"},
		{"", 12040, "CUDA 12.4"},
		{"GCC version:  gcc version 12.3.0\n", 12040, "CUDA 12.4"},
		{"NVRM version: NVIDIA UNIX x86_64 Kernel Module\n", 11080, "CUDA 11.8"},
	} {
		if got := driverRelease([]byte(c.module), c.cuda); got != c.want {
			t.Errorf("driverRelease(%q, %d) = %q; want %q", c.module, c.cuda, got, c.want)
		}
	}
}

func TestGoString(t *testing.T) {
	if got := goString(nil); got != "" {
		t.Errorf("of nil: %q", got)
	}
	if got := goString(&[]byte("abc\x00def\x00")[0]); got != "abc" {
		t.Errorf("got %q", got)
	}
}

var uuidForm = regexp.MustCompile(`^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
