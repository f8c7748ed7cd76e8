package toolchain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBuildThenCached(t *testing.T) {
	compiler, cacheDir := pinned(t), t.TempDir()
	first, origin := mustBuild(t, NewBuilder(tiny(), compiler, cacheDir), tinyTarget())
	if origin != FromCompiler {
		t.Fatalf("the first build is %s", origin)
	}
	want := Record{
		SchemaVersion: 1, Kernel: "tiny", Variant: "plain", Source: "ada/tiny.cu", Arch: "sm_89", Knobs: map[string]int{"SCALE": 3},
		Flags: []string{"-std=c++17", "-lineinfo", "-arch=compute_89"}, Compiler: "nvcc " + InstalledVersion,
		SourceHash: first.Record.SourceHash, PTXHash: first.Record.PTXHash, CodeHash: first.Record.CodeHash,
		Launch:    Launch{Threads: 64, QueryRows: 16},
		Resources: first.Record.Resources,
	}
	if diff := cmp.Diff(want, first.Record); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if r := first.Record.Resources; r.StaticSharedBytes != 256 || r.Registers < 4 || r.Barriers != 1 {
		t.Errorf("%+v", r)
	}

	// Another process with another name for the same build.
	target := tinyTarget()
	target.Variant = "other name"
	second, origin := mustBuild(t, NewBuilder(tiny(), compiler, cacheDir), target)
	if origin != FromCache {
		t.Fatalf("the second build is %s", origin)
	}
	renamed := *first
	renamed.Record.Variant = "other name"
	if diff := cmp.Diff(&renamed, second); diff != "" {
		t.Errorf("(-compiled +cached):\n%s", diff)
	}
}

// The same sources give the same PTX, record and log in every build folder. Sharing and comparing
// builds needs this.
func TestBuildIsReproducible(t *testing.T) {
	compiler := pinned(t)
	var images []*Image
	for _, name := range []string{"one", "another place"} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		t.Setenv("TMPDIR", link) // on some machines the default is a symbolic link
		image, origin := mustBuild(t, NewBuilder(tiny(), compiler, t.TempDir()), tinyTarget())
		if origin != FromCompiler {
			t.Fatalf("the build is %s", origin)
		}
		if left := names(t, dir); len(left) > 0 {
			t.Errorf("the compiler's folder is not deleted: %v", left)
		}
		images = append(images, image)
	}
	if diff := cmp.Diff(string(images[0].PTX), string(images[1].PTX)); diff != "" {
		t.Errorf("PTX:\n%s", diff)
	}
	if diff := cmp.Diff(images[0].Record, images[1].Record); diff != "" {
		t.Errorf("record:\n%s", diff)
	}
	if images[0].Log != images[1].Log || !bytes.Equal(images[0].Cubin, images[1].Cubin) {
		t.Error("log or machine code differ")
	}
	// The PTX contains the names that would differ, paths of the kernel and paths of the compiler.
	for _, want := range []string{
		"_INTERNAL_00000000_", "_GLOBAL__N__00000000_", `"ada/tiny.cu"`, `"cuda/`,
		string(byteListLine([]byte("_INTERNAL_00000000_"))[len(".b8 "):]),
	} {
		if !strings.Contains(string(images[0].PTX), want) {
			t.Errorf("the PTX has no %s", want)
		}
	}
}

func TestBuildRepairsTheCache(t *testing.T) {
	compiler, cacheDir := pinned(t), t.TempDir()
	b := NewBuilder(tiny(), compiler, cacheDir)
	good, _ := mustBuild(t, b, tinyTarget())
	dir := filepath.Join(cacheDir, "builds", b.key(tinyTarget(), good.Record.SourceHash))
	edit := func(t *testing.T, name string, change func([]byte) []byte) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, change([]byte(readFile(t, file))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	replace := func(from, to string) func([]byte) []byte {
		return func(data []byte) []byte { return bytes.Replace(data, []byte(from), []byte(to), 1) }
	}
	half := func(data []byte) []byte { return data[:len(data)/2] }
	for name, damage := range map[string]func(*testing.T){
		"half of the machine code": func(t *testing.T) { edit(t, cachedCubin, half) },
		"no machine code":          func(t *testing.T) { edit(t, cachedCubin, func([]byte) []byte { return nil }) },
		"a garbled record":         func(t *testing.T) { edit(t, cachedRecord, half) },
		"another's record":         func(t *testing.T) { edit(t, cachedRecord, replace(`"tiny"`, `"other"`)) },
		"half of the PTX":          func(t *testing.T) { edit(t, cachedPTX, half) },
		"another number in a log":  func(t *testing.T) { edit(t, cachedLog, replace("256 bytes smem", "128 bytes smem")) },
		"a missing log": func(t *testing.T) {
			if err := os.Remove(filepath.Join(dir, cachedLog)); err != nil {
				t.Fatal(err)
			}
		},
		"an empty folder": func(t *testing.T) {
			if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			damage(t)
			if image, err := b.cache.load(filepath.Base(dir), tinyTarget()); image != nil || err == nil {
				t.Fatalf("the cache returns the damaged build: %v", err)
			}
			var notes []string
			b.Note = func(text string) { notes = append(notes, text) }
			repaired, origin := mustBuild(t, b, tinyTarget())
			if origin != FromCompiler {
				t.Errorf("the build is %s", origin)
			}
			if diff := cmp.Diff(good, repaired); diff != "" {
				t.Errorf("(-first +repaired):\n%s", diff)
			}
			if len(notes) != 1 || !strings.HasPrefix(notes[0], "the cached build of plain for sm_89 is damaged (") {
				t.Errorf("the notes are %q", notes)
			}
			if _, origin := mustBuild(t, b, tinyTarget()); origin != FromCache {
				t.Errorf("the build after that is %s", origin)
			}
		})
	}
	if left := names(t, filepath.Join(cacheDir, "builds")); len(left) != 1 {
		t.Errorf("the cache contains %v", left)
	}
}

func TestConcurrentBuilds(t *testing.T) {
	compiler, cacheDir := pinned(t), t.TempDir()
	builders := []*Builder{NewBuilder(tiny(), compiler, cacheDir), NewBuilder(tiny(), compiler, cacheDir)}
	images := make([]*Image, 4)
	var all sync.WaitGroup
	for i := range images {
		all.Go(func() {
			var err error
			if images[i], _, err = builders[i%2].Build(t.Context(), tinyTarget()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, image := range images[1:] {
		if diff := cmp.Diff(images[0], image); diff != "" {
			t.Errorf("two concurrent builds differ:\n%s", diff)
		}
	}
	if _, origin := mustBuild(t, builders[0], tinyTarget()); origin != FromCache {
		t.Errorf("the build after that is %s", origin)
	}
	if left := names(t, filepath.Join(cacheDir, "builds")); len(left) != 1 {
		t.Errorf("the cache contains %v", left)
	}
}

// Several processes may store the same build at the same time, over a missing, a complete and a
// damaged one.
func TestConcurrentStores(t *testing.T) {
	b := NewBuilder(tiny(), pinned(t), t.TempDir())
	image, _ := mustBuild(t, b, tinyTarget())
	const key = "key"
	for range 30 {
		if err := os.MkdirAll(filepath.Join(b.cache.dir, key), 0o755); err != nil { // damaged
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := b.cache.store(key, tinyTarget(), image); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if stored, err := b.cache.load(key, tinyTarget()); err != nil || !cmp.Equal(stored, image) {
			t.Fatalf("the cache returns another build than was stored: %v", err)
		}
		if err := os.Remove(filepath.Join(b.cache.dir, key, cachedRecord)); err != nil {
			t.Fatal(err)
		}
	}

	// A complete build stays in place: a concurrent load finds it at any time.
	if err := b.cache.store(key, tinyTarget(), image); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20 {
				if err := b.cache.store(key, tinyTarget(), image); err != nil {
					t.Error(err)
				}
				if stored, err := b.cache.load(key, tinyTarget()); stored == nil {
					t.Errorf("the build was missing for a while: %v", err)
				}
			}
		})
	}
	all.Wait()
	if left := names(t, b.cache.dir); len(left) != 2 {
		t.Errorf("the cache contains %v", left)
	}
}

// running lists the programs whose working directory is below a folder.
func running(t testing.TB, dir string) []string {
	t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil || len(folders) == 0 {
		t.Skip("needs /proc to list processes")
	}
	var found []string
	for _, folder := range folders {
		at, err := os.Readlink(folder)
		if err == nil && strings.HasPrefix(at, dir+"/") {
			name, _ := os.ReadFile(filepath.Join(filepath.Dir(folder), "comm"))
			found = append(found, strings.TrimSpace(string(name)))
		}
	}
	return found
}

// expectNoProcess checks that no process runs in a folder. A killed process may take a moment to
// vanish.
func expectNoProcess(t testing.TB, dir string) {
	t.Helper()
	for range 6000 { // a minute: the machine may be loaded
		if len(running(t, dir)) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("still running: %v", running(t, dir))
}

func TestBuildCancelled(t *testing.T) {
	compiler := pinned(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	// A dependency chain of this length keeps the compiler busy for minutes.
	var slow strings.Builder
	slow.WriteString("extern \"C\" __global__ void tiny(float* out, const float* x) {\n  float a = x[threadIdx.x];\n")
	for i := range 5000 {
		fmt.Fprintf(&slow, "  a = __sinf(a * %d.5f) + x[(int)a & %d];\n", i, i)
	}
	slow.WriteString("  out[threadIdx.x] = a;\n}\n")
	b := NewBuilder(with(tiny(), "ada/tiny.cu", slow.String()), compiler, t.TempDir())

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, _, err := b.Build(ctx, tinyTarget())
		done <- err
	}()
	deadline := time.After(5 * time.Minute) // the machine may be loaded
	for busy := false; !busy; {
		select {
		case err := <-done:
			t.Fatalf("the build ended before it was cancelled: %v", err)
		case <-deadline:
			t.Fatal("nvcc does not start its compiler")
		case <-time.After(10 * time.Millisecond):
			busy = strings.Contains(strings.Join(running(t, dir), " "), "cicc")
		}
	}
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", err)
		}
	case <-deadline:
		t.Fatal("a cancelled build does not return")
	}
	expectNoProcess(t, dir)
	if left := names(t, dir); len(left) > 0 {
		t.Errorf("not deleted: %v", left)
	}

	// A build that waits for a slot returns at once too, and so does one that starts too late.
	for range cap(b.slots) {
		b.slots <- struct{}{}
	}
	if _, _, err := b.Build(ctx, tinyTarget()); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v of a build that waits, want context.Canceled", err)
	}
	if _, _, err := NewBuilder(tiny(), compiler, t.TempDir()).Build(ctx, tinyTarget()); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v of a build that starts too late, want context.Canceled", err)
	}
}

func TestCompileErrors(t *testing.T) {
	compiler := pinned(t)
	cacheDir := t.TempDir()
	source := string(tiny()["ada/tiny.cu"].Data)
	build := func(source string, change func(*Target)) error {
		t.Helper()
		target := tinyTarget()
		change(&target)
		image, _, err := NewBuilder(with(tiny(), "ada/tiny.cu", source), compiler, cacheDir).Build(t.Context(), target)
		if err == nil || image != nil {
			t.Fatalf("image %v, error %v, want an error", image, err)
		}
		return err
	}
	same := func(*Target) {}

	err := build(strings.Replace(source, "tile[63", "tyle[63", 1), same)
	var refused *CompileError
	if !errors.As(err, &refused) {
		t.Fatalf("error %v, want a CompileError", err)
	}
	if !strings.Contains(refused.Output, `ada/tiny.cu(16): error: identifier "tyle" is undefined`) {
		t.Errorf("nvcc's output is missing:\n%s", refused.Output)
	}
	if strings.Contains(refused.Output, os.TempDir()) || strings.Contains(refused.Output, "attune-build") {
		t.Errorf("the output contains a machine path:\n%s", refused.Output)
	}
	if got := refused.Error(); !strings.HasPrefix(got, "plain for sm_89 does not compile:\nada/tiny.cu(16)") {
		t.Errorf("message %q", got)
	}

	// nvcc does not check inline PTX; ptxas rejects it.
	err = build(strings.Replace(source, "__syncthreads();", `asm volatile("no.such.instruction;");`, 1), same)
	if !errors.As(err, &refused) || !strings.Contains(refused.Output, "Not a name of any known instruction: 'no'") {
		t.Errorf("error %v, want a CompileError of ptxas", err)
	}
	if strings.Contains(err.Error(), os.TempDir()) {
		t.Errorf("the error contains a machine path: %v", err)
	}

	err = build(source, func(t *Target) { t.Kernel = "other" })
	if errors.As(err, &refused) || !strings.Contains(err.Error(), `build plain for sm_89: ptxas compiled no entry function "other"`) {
		t.Errorf("no such entry: %v", err)
	}
	if !strings.Contains(err.Error(), "'tiny'") {
		t.Errorf("the error does not name the existing entry: %v", err)
	}
	err = build(strings.Replace(source, "ATTUNE_LAUNCH(64, 16, 0);", "", 1), same)
	if errors.As(err, &refused) || !strings.Contains(err.Error(), "attune_launch") {
		t.Errorf("no launch contract: %v", err)
	}
	if broken := (*SourceError)(nil); !errors.As(err, &broken) || broken.Target.Arch != "sm_89" {
		t.Errorf("no launch contract: %T, want a SourceError", err)
	}
	if cached := names(t, filepath.Join(cacheDir, "builds")); len(cached) > 0 {
		t.Errorf("failures are cached: %v", cached)
	}
}

// A compiler that was killed, that crashes or that is broken has not rejected the variant.
func TestBuildWithBrokenCompiler(t *testing.T) {
	plainEnvironment(t)
	build := func(nvcc, ptxas string) error {
		t.Helper()
		dir := t.TempDir()
		script(t, filepath.Join(dir, "nvcc"), nvcc)
		if ptxas != "" {
			script(t, filepath.Join(dir, "ptxas"), ptxas)
		}
		compiler := &Compiler{NVCC: filepath.Join(dir, "nvcc"), PTXAS: filepath.Join(dir, "ptxas"), Version: "0", Origin: "CUDA_HOME"}
		_, _, err := NewBuilder(tiny(), compiler, t.TempDir()).Build(t.Context(), tinyTarget())
		if err == nil {
			t.Fatalf("%q builds", nvcc)
		}
		return err
	}
	const writesPTX = "cat > image.ptx <<'end'\n.version 9.0\n.target sm_89\n" +
		".global .align 4 .u32 attune_launch[3] = {64, 16, 0};\n.visible .entry tiny()\n{\n}\nend\n"
	for _, c := range []struct {
		name, nvcc, ptxas, want string
		refused                 bool
	}{
		{"rejects", "echo 'ada/tiny.cu(3): error: no'; exit 2", "", "plain for sm_89 does not compile:\nada/tiny.cu(3): error: no", true},
		{"says no more than no", "echo no; exit 2", "", "nvcc ended with exit status 2: no; repair the toolkit of CUDA_HOME", false},
		{"says nothing", "exit 1", "", "nvcc ended with exit status 1 and printed nothing", false},
		{"crashes", "echo hm; kill -SEGV $$", "", "nvcc crashed: segmentation fault", false},
		{"is killed", "kill -KILL $$", "", "nvcc was killed; probably the machine ran out of memory; free memory and run it again", false},
		{"has a child that is killed", "exit 137", "", "was killed; probably the machine ran out of memory", false},
		{"has a child that crashes", "echo Segmentation fault; exit 139", "", "nvcc crashed: segmentation fault", false},
		{"writes nothing", "exit 0", "", "nvcc reported success and wrote no image.ptx", false},
		{"writes an empty file", ": > image.ptx", "", "wrote an incomplete image.ptx", false},
		{"writes half of a file", "printf '.version 9.0\\n.visible .entry ti' > image.ptx", "", "wrote an incomplete image.ptx", false},
		{"has no ptxas", writesPTX, "", "ptxas does not run", false},
		{"has a silent ptxas", writesPTX, "exit 1", "ptxas ended with exit status 1 and printed nothing", false},
		{"has a ptxas that writes nothing", writesPTX, "exit 0", "ptxas reported success and wrote no image.cubin", false},
		{"has a ptxas that writes text", writesPTX, "echo text > image.cubin", "wrote an incomplete image.cubin", false},
		{"has a ptxas that rejects", writesPTX, "echo 'ptxas error   : Entry function uses too much shared data'; exit 255", "too much", true},
	} {
		err := build(c.nvcc, c.ptxas)
		var refused *CompileError
		var fault *FaultError
		if errors.As(err, &refused) != c.refused || errors.As(err, &fault) == c.refused || !strings.Contains(err.Error(), c.want) {
			t.Errorf("nvcc %s: error %q (CompileError: %v), want %q (%v)", c.name, err, !c.refused, c.want, c.refused)
		}
		if fault != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("nvcc %s: the error has several lines: %q", c.name, err)
		}
	}
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "gone"))
	if _, _, err := NewBuilder(tiny(), &Compiler{}, "").Build(t.Context(), tinyTarget()); err == nil ||
		!strings.Contains(err.Error(), "make a folder for the compiler") {
		t.Errorf("no temporary folder: %v", err)
	}
}

// A cache that cannot be written is noted once, and the build is good.
func TestBuildCannotBeCached(t *testing.T) {
	compiler := pinned(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var notes []string
	b := NewBuilder(tiny(), compiler, file)
	b.Note = func(text string) { notes = append(notes, text) }
	for range 2 {
		if image, origin := mustBuild(t, b, tinyTarget()); image == nil || origin != FromCompiler {
			t.Errorf("the build is %s", origin)
		}
	}
	if len(notes) != 1 || !strings.HasPrefix(notes[0], "builds are not cached: ") || !strings.Contains(notes[0], "set ATTUNE_CACHE") {
		t.Errorf("the notes are %q", notes)
	}
}

// No damaged file of a cached build is used: a flipped bit anywhere, a file that is cut short, longer
// or missing, or the files of another build.
func TestCachedBuildsAreVerified(t *testing.T) {
	b := NewBuilder(tiny(), pinned(t), t.TempDir())
	image, _ := mustBuild(t, b, tinyTarget())
	key := b.key(tinyTarget(), image.Record.SourceHash)
	dir := filepath.Join(b.cache.dir, key)
	used, tried := 0, 0
	try := func(file string, damaged []byte, what string) {
		t.Helper()
		if err := os.WriteFile(file, damaged, 0o644); err != nil {
			t.Fatal(err)
		}
		tried++
		if loaded, err := b.cache.load(key, tinyTarget()); loaded != nil || err == nil {
			used++
			t.Errorf("%s of %s is used", what, filepath.Base(file))
		}
	}
	for _, name := range names(t, dir) {
		file := filepath.Join(dir, name)
		data := []byte(readFile(t, file))
		for range 100 {
			flipped := bytes.Clone(data)
			at := rand.IntN(len(data))
			flipped[at] ^= 1 << rand.IntN(8)
			try(file, flipped, fmt.Sprintf("a flipped bit at %d", at))
		}
		for range 10 {
			try(file, data[:rand.IntN(len(data))], "a part")
		}
		try(file, append(bytes.Clone(data), '\n'), "one more line")
		try(file, data[:len(data)-1], "all but the last byte")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if loaded, err := b.cache.load(key, tinyTarget()); loaded != nil || err == nil || err.Error() != name+" is missing" {
			t.Errorf("without %s: image %t, %v", name, loaded != nil, err)
		}
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d damaged builds were used", used, tried)
	if loaded, err := b.cache.load(key, tinyTarget()); loaded == nil || err != nil {
		t.Errorf("the repaired build is not used: %v", err)
	}

	// The files of another build, complete with their hashes.
	other := tinyTarget()
	other.Knobs = map[string]int{"SCALE": 4}
	otherKey := b.key(other, image.Record.SourceHash)
	if err := os.Rename(dir, filepath.Join(b.cache.dir, otherKey)); err != nil {
		t.Fatal(err)
	}
	if loaded, err := b.cache.load(otherKey, other); loaded != nil || err == nil {
		t.Errorf("another build is used: %v", err)
	}
	if loaded, err := b.cache.load(key, tinyTarget()); loaded != nil || err != nil {
		t.Errorf("a missing build: %v, %v", loaded, err)
	}
}

// Folders of processes that were killed while they stored a build are removed after a while.
func TestStoreRemovesLeftovers(t *testing.T) {
	b := NewBuilder(tiny(), pinned(t), t.TempDir())
	old, recent := filepath.Join(b.cache.dir, stagingPrefix+"old"), filepath.Join(b.cache.dir, stagingPrefix+"recent")
	past := time.Now().Add(-2 * leftoverAge)
	if err := errors.Join(os.MkdirAll(old, 0o755), os.MkdirAll(recent, 0o755), os.Chtimes(old, past, past)); err != nil {
		t.Fatal(err)
	}
	mustBuild(t, b, tinyTarget())
	if left := names(t, b.cache.dir); len(left) != 2 || left[0] != stagingPrefix+"recent" {
		t.Errorf("the cache contains %v, want the recent folder and the build", left)
	}
}

func TestBuildDependsOnTheEnvironment(t *testing.T) {
	compiler, cacheDir := pinned(t), t.TempDir()
	b := NewBuilder(tiny(), compiler, cacheDir)
	plain, _ := mustBuild(t, b, tinyTarget())
	t.Setenv("NVCC_APPEND_FLAGS", "-USCALE -DSCALE=5")
	other, origin := mustBuild(t, b, tinyTarget())
	if origin != FromCompiler || other.Record.CodeHash == plain.Record.CodeHash {
		t.Errorf("with other flags in the environment the build is %s, with the same code: %v",
			origin, other.Record.CodeHash == plain.Record.CodeHash)
	}
	if last := other.Record.Flags[len(other.Record.Flags)-1]; last != "NVCC_APPEND_FLAGS=-USCALE -DSCALE=5" {
		t.Errorf("the record's last flag is %s", last)
	}
	plainEnvironment(t)
	if again, origin := mustBuild(t, b, tinyTarget()); origin != FromCache || again.Record.CodeHash != plain.Record.CodeHash {
		t.Errorf("without them the build is %s", origin)
	}
}

func TestKey(t *testing.T) {
	plainEnvironment(t)
	key := func(version, sourceHash string, change func(*Target)) string {
		target := tinyTarget()
		change(&target)
		return NewBuilder(tiny(), &Compiler{Version: version}, "").key(target, sourceHash)
	}
	same := func(*Target) {}
	base := key("13.0.88", "abc", same)
	for name, other := range map[string]string{
		"compiler":     key("13.0.89", "abc", same),
		"sources":      key("13.0.88", "abd", same),
		"kernel":       key("13.0.88", "abc", func(t *Target) { t.Kernel = "other" }),
		"source":       key("13.0.88", "abc", func(t *Target) { t.Source = "other.cu" }),
		"architecture": key("13.0.88", "abc", func(t *Target) { t.Arch = "sm_90a" }),
		"knob":         key("13.0.88", "abc", func(t *Target) { t.Knobs = map[string]int{"SCALE": 4} }),
		"one knob more": key("13.0.88", "abc", func(t *Target) {
			t.Knobs = maps.Clone(t.Knobs)
			t.Knobs["ONE_MORE"] = 0
		}),
	} {
		if other == base {
			t.Errorf("another %s has the same key", name)
		}
	}
	if key("13.0.88", "abc", func(t *Target) { t.Variant = "other name" }) != base {
		t.Error("the variant's name changes the key")
	}
	for _, name := range []string{"NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN"} {
		plainEnvironment(t)
		t.Setenv(name, "x")
		if key("13.0.88", "abc", same) == base {
			t.Errorf("%s does not change the key", name)
		}
	}
}

// A build that an earlier version of attune stored, without hashes or with another record, is built
// again, and the note does not call it damaged.
func TestBuildOfAnEarlierVersion(t *testing.T) {
	b := NewBuilder(tiny(), pinned(t), t.TempDir())
	image, _ := mustBuild(t, b, tinyTarget())
	key := b.key(tinyTarget(), image.Record.SourceHash)
	dir := filepath.Join(b.cache.dir, key)
	for name, change := range map[string]func() error{
		"without hashes": func() error { return os.Remove(filepath.Join(dir, cachedSums)) },
		"with another record": func() error {
			older := *image
			older.Record.Launch.Threads++
			return errors.Join(os.RemoveAll(dir), b.cache.store(key, tinyTarget(), &older))
		},
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		var notes []string
		b.Note = func(text string) { notes = append(notes, text) }
		if _, origin := mustBuild(t, b, tinyTarget()); origin != FromCompiler {
			t.Errorf("%s: the build is %s", name, origin)
		}
		if len(notes) != 1 || !strings.HasPrefix(notes[0], "the cached build of plain for sm_89 is of an earlier version (") {
			t.Errorf("%s: the notes are %q", name, notes)
		}
	}
}
