package exec

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"attune/internal/crash"
	"attune/internal/finding"
)

// asker is a process that has opened the driver: it sends requests and reads the replies.
type asker struct {
	t *testing.T
	*session
	lines []string
}

func newAsker(t *testing.T, o Options) *asker {
	t.Helper()
	a, err := newArena()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.close)
	p := &asker{t: t}
	if o.Arch == "" {
		o.Arch = "sm_90a"
	}
	if o.Memory == 0 {
		o.Memory = 64 << 20
	}
	o.Line = func(text string) { p.lines = append(p.lines, text) }
	p.session = newSession(newServer(o), a)
	return p
}

// ask sends a request. Numbers are words of 64 bits, those of type int32 of 32 bits; strings and bytes
// are as they are.
func (p *asker) ask(request uint64, parts ...any) (status, []byte) {
	code, _, result := p.answer(p.t.Context(), request, body(parts))
	return code, result
}

func body(parts []any) []byte {
	var data []byte
	for _, part := range parts {
		switch v := part.(type) {
		case int:
			data = binary.LittleEndian.AppendUint64(data, uint64(v))
		case uint64:
			data = binary.LittleEndian.AppendUint64(data, v)
		case int32:
			data = binary.LittleEndian.AppendUint32(data, uint32(v))
		case uint32:
			data = binary.LittleEndian.AppendUint32(data, v)
		case string:
			data = append(data, v...)
		case []byte:
			data = append(data, v...)
		default:
			panic(fmt.Sprintf("a part of type %T", part))
		}
	}
	return data
}

// want sends a request and checks its status.
func (p *asker) want(code status, request uint64, parts ...any) []byte {
	p.t.Helper()
	got, result := p.ask(request, parts...)
	if got != code {
		p.t.Errorf("request %d of %v: status %d, want %d (%q)", request, parts, got, code, p.lines)
	}
	return result
}

// allocated allocates memory of a kind.
func (p *asker) allocated(size, kind int) uint64 {
	p.t.Helper()
	result := p.want(success, requestAlloc, size, kind)
	if len(result) != 8 {
		p.t.Fatalf("%d bytes are not allocated: %q", size, p.lines)
	}
	return binary.LittleEndian.Uint64(result)
}

// said checks that the last line has a text.
func (p *asker) said(text string) {
	p.t.Helper()
	if len(p.lines) == 0 || !strings.Contains(p.lines[len(p.lines)-1], text) {
		p.t.Errorf("the lines are %q, want %q at the end", p.lines, text)
	}
}

// units has kernels of every kind of failure.
const units = `.version 8.0
.target sm_90
.address_size 64
.visible .global .align 4 .u32 counter = 7;
.visible .entry store(.param .u64 p, .param .u32 v)
{
	.reg .b64 %p;
	.reg .b32 %v;
	ld.param.u64 %p, [p];
	ld.param.u32 %v, [v];
	st.global.u32 [%p], %v;
	ret;
}
.visible .entry small(.param .u64 p) .maxntid 32, 2, 1 { ret; }
.visible .entry exact() .reqntid 64 { ret; }
.visible .entry pairs() .reqnctapercluster 2 { ret; }
.visible .entry ends() { trap; }
.visible .entry spins(.param .u64 p)
{
	.reg .b64 %p;
	.reg .b32 %v;
	.reg .pred %q;
	ld.param.u64 %p, [p];
again:
	ld.volatile.global.u32 %v, [%p];
	setp.eq.u32 %q, %v, 0;
	@%q bra again;
	ret;
}
`

// flag allocates a word of zeros.
func (p *asker) flag() uint64 {
	p.t.Helper()
	at := p.allocated(4, managedMemory)
	p.want(success, requestFill, at, 0, 1, 1, int32(0), int32(4))
	return at
}

// run launches a kernel and returns the status and the error that it leaves.
func (p *asker) run(kernel string, grid, block, cluster [3]int32, cooperative int32, params ...any) (code, failed status) {
	p.t.Helper()
	code, _, result := p.answer(p.t.Context(), requestLaunch, p.launchOf(kernel, grid, block, cluster, cooperative, params...))
	return code, status(binary.LittleEndian.Uint32(append(result, 0, 0, 0, 0)))
}

func (p *asker) launchOf(kernel string, grid, block, cluster [3]int32, cooperative int32, params ...any) []byte {
	p.t.Helper()
	id := p.want(success, requestFunction, int32(1), kernel)
	if len(id) < 4 {
		p.t.Fatalf("there is no %s: %q", kernel, p.lines)
	}
	parts := []any{id[:4]}
	for _, extents := range [][3]int32{grid, block, cluster} {
		parts = append(parts, extents[0], extents[1], extents[2])
	}
	return body(append(append(parts, int32(0), cooperative), params...))
}

var one, none = [3]int32{1, 1, 1}, [3]int32{}

// TestLaunches checks how launches fail that start, and those that do not.
func TestLaunches(t *testing.T) {
	t.Parallel()
	p := newAsker(t, Options{Checks: true, Skip: []string{"small"}})
	var states []Progress
	p.options.Progress = func(state Progress) { states = append(states, state) }
	p.want(success, requestLoad, units)
	buffer, flag := p.allocated(64, deviceMemory), p.flag()
	for _, c := range []struct {
		kernel       string
		grid, block  [3]int32
		cluster      [3]int32
		cooperative  int32
		params       []any
		code, failed status
		line         string
	}{
		{"store", one, one, none, 0, []any{buffer, int32(5)}, success, success, ""},
		{"store", one, one, none, 0, []any{buffer}, invalidValue, success, ""}, // a parameter is missing
		{"small", one, [3]int32{32, 2, 1}, none, 0, []any{buffer}, success, success, ""},
		{"small", one, [3]int32{65, 1, 1}, none, 0, []any{buffer}, resourcesOutOfLaunch, success, "compiled for 64 at most"},
		{"exact", one, [3]int32{32, 1, 1}, none, 0, nil, resourcesOutOfLaunch, success, "compiled for [64 1 1]"},
		{"pairs", [3]int32{4, 1, 1}, one, [3]int32{4, 1, 1}, 0, nil, invalidClusterSize, success, "clusters of"},
		{"ends", [3]int32{1 << 20, 1, 1}, one, none, 1, nil, cooperativeTooLarge, success, "cooperative grid"},
		{"ends", one, none, none, 0, nil, invalidValue, success, "launch"},
		{"spins", one, one, none, 0, []any{flag}, success, launchTimeout, ""},
		{"ends", one, one, none, 0, nil, success, launchFailed, ""},
	} {
		p.lines = nil
		code, failed := p.run(c.kernel, c.grid, c.block, c.cluster, c.cooperative, c.params...)
		if code != c.code || failed != c.failed || c.line == "" && len(p.lines) > 0 {
			t.Errorf("%s, blocks of %v: status %d, left %d; %q", c.kernel, c.block, code, failed, p.lines)
		}
		if c.line != "" {
			p.said(c.line)
		}
	}
	p.want(invalidHandle, requestLaunch, int32(99))
	p.want(invalidHandle, requestLaunch)
	var kinds []finding.Kind
	for _, f := range p.outcome.Findings {
		kinds = append(kinds, f.Kind)
	}
	if fmt.Sprint(kinds) != "[deadlock trap]" || p.outcome.Failed(false) != 2 || len(p.outcome.Refused) > 0 {
		t.Errorf("findings %v, refused %v", kinds, p.outcome.Refused)
	}
	if len(states) != 2*p.outcome.Launches || !states[0].Running || states[0].Kernel != "store" || states[1].WarpInstructions == 0 {
		t.Errorf("%d states for %d launches: %+v", len(states), p.outcome.Launches, states[:2])
	}
	for _, k := range p.outcome.Kernels {
		if checked := k.Checked > 0; checked == (k.Name == "small") {
			t.Errorf("%+v", k)
		}
	}
}

// TestCancelled checks that a launch ends with the run, and is no finding.
func TestCancelled(t *testing.T) {
	t.Parallel()
	p := newAsker(t, Options{})
	p.want(success, requestLoad, units)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	code, _, result := p.answer(ctx, requestLaunch, p.launchOf("spins", one, one, none, 0, p.flag()))
	if code != success || status(binary.LittleEndian.Uint32(result)) != launchFailed || len(p.outcome.Findings)+len(p.outcome.Refused)+len(p.lines) > 0 {
		t.Errorf("status %d, left %v, %q, %+v", code, result, p.lines, p.outcome)
	}
}

// TestRefusals checks launches that the simulator does not run: they have a line and are listed.
func TestRefusals(t *testing.T) {
	t.Parallel()
	p := newAsker(t, Options{})
	p.want(success, requestLoad, ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry odd() { .reg .b32 %r; multimem.unknown.u32 %r, %r; ret; }\n"+
		".visible .entry fine() { ret; }\n")
	for range 2 {
		if code, _ := p.run("odd", one, one, none, 0); code != notSupported {
			t.Errorf("status %d", code)
		}
	}
	p.said("kernel odd: ")
	if code, failed := p.run("fine", one, one, none, 0); code != success || failed != success {
		t.Errorf("another kernel of the module: %d, %d", code, failed)
	}
	if len(p.outcome.Refused) != 1 || p.outcome.Refused[0].Kernel != "odd" || len(p.lines) != 1 {
		t.Errorf("%+v, %q", p.outcome.Refused, p.lines)
	}
}

// TestModules checks what a program may ask about modules, also about those that cannot be read.
func TestModules(t *testing.T) {
	t.Parallel()
	p := newAsker(t, Options{})
	p.want(success, requestLoad, units)
	if names := p.want(success, requestKernels, int32(1)); string(names) != "store\x00small\x00exact\x00pairs\x00ends\x00spins\x00" {
		t.Errorf("the kernels are %q", names)
	}
	variable := p.want(success, requestGlobal, int32(1), "counter")
	if len(variable) != 24 || variable[8] != 4 || variable[16] != 0 || !p.isDevice(binary.LittleEndian.Uint64(variable)) {
		t.Errorf("the variable is %v", variable)
	}
	if small := p.want(success, requestFunction, int32(1), "small"); binary.LittleEndian.Uint32(small[12:]) != 64 {
		t.Errorf("the most threads of small: %v", small)
	}
	if pairs := p.want(success, requestFunction, int32(1), "pairs"); binary.LittleEndian.Uint32(pairs[12+4*functionClusterWidth:]) != 2 {
		t.Errorf("the clusters of pairs: %v", pairs)
	}
	for _, name := range []string{"", "counter", "stores"} {
		p.want(notFound, requestFunction, int32(1), name)
	}
	p.want(notFound, requestGlobal, int32(1), "store")
	p.want(success, requestUnload, int32(1))
	for image, c := range map[string]struct {
		code status
		line string
	}{
		"\x7fELF machine code":                       {noBinary, "machine code and no PTX"},
		"no PTX":                                     {invalidPTX, "cannot read the PTX"},
		".version 8.0\n.target sm_100\n":             {invalidPTX, "cannot run the PTX"},
		"\x50\xed\x55\xba":                           {invalidPTX, "it is not complete"},
		".version 8.0\n.target sm_90\n.entry k() { ": {invalidPTX, "cannot read the PTX"},
	} {
		id := p.want(success, requestLoad, image)
		for _, request := range []uint64{requestFunction, requestKernels, requestGlobal} { // the reason is told once
			p.want(c.code, request, id, "store")
		}
		p.said(c.line)
	}
	for _, request := range []uint64{requestFunction, requestKernels, requestGlobal} {
		p.want(invalidHandle, request, int32(0), "store")
		p.want(invalidHandle, request, int32(99), "store")
	}
	if len(p.lines) != 5 {
		t.Errorf("the lines are %q", p.lines)
	}
}

// TestAllocations checks allocations, frees and ranges.
func TestAllocations(t *testing.T) {
	t.Parallel()
	p := newAsker(t, Options{})
	p.want(outOfMemory, requestAlloc, 16, -1)
	p.want(outOfMemory, requestAlloc, 16, registeredMemory)
	p.want(outOfMemory, requestAlloc, 16, reservedMemory+1)
	p.want(outOfMemory, requestAlloc, 1<<40, deviceMemory)
	empty := p.allocated(0, deviceMemory)
	p.want(success, requestFree, empty, int32(0))
	for kind, shown := range map[int]int32{deviceMemory: deviceMemory, managedMemory: managedMemory, hostMemory: hostMemory} {
		at := p.allocated(24, kind)
		if got := p.want(success, requestRange, at+23); !bytes.Equal(got, body([]any{at, 24, shown, int32(1)})) {
			t.Errorf("kind %d is in the range %v", kind, got)
		}
		if got := p.want(success, requestRange, at+24); !bytes.Equal(got, make([]byte, 24)) {
			t.Errorf("behind it there is %v", got)
		}
		host := int32(0)
		if kind == hostMemory {
			host = 1
		}
		p.want(invalidValue, requestFree, at+1, host)
		p.want(invalidValue, requestFree, at, 1-host) // by the call for other memory
		p.want(success, requestFree, at, host)
		p.want(invalidValue, requestFree, at, host)
	}
	at := p.allocated(1<<32, reservedMemory) // more than the memory
	if got := p.want(success, requestRange, at); !bytes.Equal(got, make([]byte, 24)) {
		t.Errorf("reserved addresses have memory: %v", got)
	}
	p.want(invalidValue, requestMap, at, 0, 1)
	p.want(invalidValue, requestMap, at+4096, 1<<32, 1) // past the end
	p.want(outOfMemory, requestMap, at, 1<<31, 1)
	p.want(success, requestMap, at+4096, 4096, 0)
	p.want(success, requestMap, at, 4096, 1)
	if got := p.want(success, requestRange, at+8191); !bytes.Equal(got, body([]any{at, 8192, int32(deviceMemory), int32(1)})) {
		t.Errorf("neighbours are in the range %v", got)
	}
	p.want(invalidValue, requestFree, at, int32(0))
	p.want(success, requestUnmap, at+2048, 4096) // the middle
	p.want(invalidValue, requestUnmap, at+2048, 4096)
	if got := p.want(success, requestRange, at+8191); !bytes.Equal(got, body([]any{at + 6144, 2048, int32(deviceMemory), int32(1)})) {
		t.Errorf("behind what was unmapped is the range %v", got)
	}
	p.want(success, requestUnmap, at, 1<<32)
	p.want(success, requestFree, at, int32(0))
	free := func() uint64 { return binary.LittleEndian.Uint64(p.want(success, requestMemory)) }
	before := free()
	p.allocated(8<<20, deviceMemory)
	if after := free(); before-after < 8<<20 {
		t.Errorf("%d bytes were free, and then %d", before, after)
	}
	p.want(outOfMemory, requestAlloc, 30<<20, deviceMemory)
	p.said("allocate 31457280 bytes")
	named := p.want(success, requestAlloc, 8, deviceMemory, int32(2), "out")
	if b := p.memory.Find(binary.LittleEndian.Uint64(named)); b == nil || b.Variable.Space != finding.Argument || b.Variable.Index != 2 || b.Variable.Name != "out" {
		t.Errorf("the argument is %+v", b)
	}
	p.want(success, requestLimit, limitHeap, 1<<20)
	p.want(success, requestLimit, 0, 5)
	if p.heap.Bytes != 1<<20 {
		t.Errorf("the heap has %d bytes", p.heap.Bytes)
	}
	if hello := p.want(success, requestHello, int32(17)); p.process != 17 || !bytes.Contains(hello, []byte("attune simulator (sm_90a)")) {
		t.Errorf("process %d, %q", p.process, hello)
	}
}

// TestCopies checks copies and fills that leave their allocations.
func TestCopies(t *testing.T) {
	t.Parallel()
	p := newAsker(t, Options{})
	a, b := p.allocated(64, deviceMemory), p.allocated(64, deviceMemory)
	const host = 0x1000
	box := func(to, from uint64, width, height int) []any {
		return []any{to, from, width, height, 1, 16, 0, 16, 0}
	}
	p.want(success, requestFill, a, 16, 16, 4, int32(7), int32(1))
	for _, c := range []struct {
		box   []any
		code  status
		moved int32
	}{
		{box(b, a, 16, 4), success, 1},
		{box(host, a, 16, 4), success, 0},
		{box(b, host, 16, 4), success, 0},
		{box(host, host, 16, 4), success, 0},
		{box(b, a, 16, 5), invalidValue, 0},
		{box(host, a, 17, 4), invalidValue, 0},
		{box(b+49, host, 16, 1), invalidValue, 0},
		{box(b, 0x2000_7000_0000, 4, 1), invalidValue, 0}, // no allocation
	} {
		p.lines = nil
		moved := p.want(c.code, requestCopy, c.box...)
		if c.code == success && !bytes.Equal(moved, u32s(int(c.moved))) {
			t.Errorf("%v: moved %v", c.box, moved)
		}
		if c.code != success {
			p.said("a copy of ")
		}
	}
	if got := p.memory.Find(b).Data; !bytes.Equal(got, bytes.Repeat([]byte{7}, 64)) {
		t.Errorf("the copy is %v", got)
	}
	p.want(success, requestFill, a+2, 0, 3, 1, uint32(0x1234), int32(2))
	if got := p.memory.Find(a).Data[:10]; !bytes.Equal(got, []byte{7, 7, 0x34, 0x12, 0x34, 0x12, 0x34, 0x12, 7, 7}) {
		t.Errorf("the fill is %v", got)
	}
	p.want(invalidValue, requestFill, a, 0, 1, 1, int32(0), int32(3))
	p.want(invalidValue, requestFill, a, 0, 1<<40, 1, int32(0), int32(1))
	p.want(invalidValue, requestFill, a, 0, 65, 1, int32(0), int32(1))
	p.said("a fill of 65 bytes")
}

// TestRegistered checks memory of the host that becomes that of the device.
func TestRegistered(t *testing.T) {
	t.Parallel()
	p := newAsker(t, Options{})
	page := os.Getpagesize()
	first := 1 << 20
	p.want(success, requestRegister, first+8, 100, first, page)
	if got := p.want(success, requestRange, first+8); !bytes.Equal(got, body([]any{first + 8, 100, int32(hostMemory), int32(1)})) {
		t.Errorf("the range is %v", got)
	}
	p.want(invalidValue, requestFree, first+8, int32(0))
	p.want(invalidValue, requestFree, first+8, int32(1))
	p.want(alreadyRegistered, requestRegister, first+50, 100, first, page)
	p.want(alreadyRegistered, requestRegister, p.allocated(8, deviceMemory), 8, first, 1<<50)
	p.want(invalidValue, requestRegister, first, 100, first+page, page)
	p.want(invalidValue, requestRegister, first, page+1, first, page)
	p.want(invalidValue, requestRegister, first+1, 1, first+1, page)
	p.want(outOfMemory, requestRegister, 8*first, 1<<43, 8*first, 1<<43)
	p.want(notRegistered, requestUnregister, first)
	if got := p.want(success, requestUnregister, first+8); !bytes.Equal(got, u64s(100)) {
		t.Errorf("unregistered %v bytes", got)
	}
	p.want(notRegistered, requestUnregister, first+8)
}

// TestLibraryCalls checks the accesses of calls that the host computes.
func TestLibraryCalls(t *testing.T) {
	t.Parallel()
	p := newAsker(t, Options{Checks: true})
	a, b := p.allocated(64, deviceMemory), p.allocated(64, deviceMemory)
	p.want(success, requestFill, a, 0, 64, 1, int32(0), int32(1))
	region := func(at uint64, pitch, width, height int, writes, host int32) []any {
		return []any{at, pitch, width, height, writes, host}
	}
	call := func(regions ...[]any) []any {
		parts := []any{int32(len(regions))}
		for _, r := range regions {
			parts = append(parts, r...)
		}
		return append(parts, "gemm")
	}
	const host = 0x1000
	for _, c := range []struct {
		parts  []any
		code   status
		detail string
	}{
		{call(region(a, 16, 8, 4, 0, 0), region(b, 0, 32, 1, 1, 0)), success, ""},
		{call(region(b, 0, 32, 1, 0, 0)), success, ""}, // what the first call has written
		{call(region(host, 0, 8, 1, 0, 1), region(host, 0, 8, 1, 1, 1)), success, ""},
		{call(region(b, 0, 33, 1, 0, 0)), success, "reads byte 32 of"},
		{call(region(host, 0, 8, 1, 0, 0)), invalidValue, "reads 8 bytes at address 0x1000"},
		{call(region(b, 16, 8, 5, 1, 0)), invalidValue, "writes 8 bytes at address"},
		{call(region(a+60, 0, 8, 1, 1, 1)), invalidValue, "writes 8 bytes at address"},
	} {
		before := len(p.outcome.Findings)
		p.want(c.code, requestLibrary, c.parts...)
		found := p.outcome.Findings[before:]
		if len(found) != min(1, len(c.detail)) || len(found) > 0 && (!strings.HasPrefix(found[0].Detail, c.detail) || found[0].Kernel != "gemm") {
			t.Errorf("%v: findings %+v", c.parts, found)
		}
	}
	p.want(success, requestLibrary, uint32(checkOnly), "dot") // is no call
	p.want(success, requestLibrary, int32(0), "dot")
	if p.outcome.HostedCalls() != 8 || len(p.outcome.Hosted) != 2 {
		t.Errorf("%d calls of %d functions", p.outcome.HostedCalls(), len(p.outcome.Hosted))
	}
}

// TestTextures checks the objects of textures.
func TestTextures(t *testing.T) {
	t.Parallel()
	p := newAsker(t, Options{})
	at := p.allocated(64, deviceMemory)
	texture := func(at uint64, bits, kind, channels, linear int32) []any {
		parts := []any{at, 16, 1, 1, 64, 64, bits, kind, channels, int32(0), linear, int32(0), int32(0), int32(0), int32(0), int32(0), int32(0)}
		for range 4 {
			parts = append(parts, math.Float32bits(1))
		}
		return parts
	}
	made := p.want(success, requestTexture, texture(at, 32, 2, 1, 1)...)
	if o := p.memory.Texture(binary.LittleEndian.Uint64(made)); o == nil || o.Border[0] != 0 || o.Extent[0] != 16 {
		t.Errorf("the texture is %+v", o)
	}
	p.want(success, requestTextureFree, made)
	p.want(invalidValue, requestTextureFree, made)
	for _, bad := range [][]any{texture(at, 24, 2, 1, 0), texture(at, 32, 3, 1, 0), texture(at, 32, 2, 0, 0), texture(at, 32, 2, 5, 0), texture(64, 32, 2, 1, 0), texture(at, 32, 2, 1, 0)[:9]} {
		p.want(invalidValue, requestTexture, bad...)
	}
}

// TestTensorMaps checks maps as the driver gets them.
func TestTensorMaps(t *testing.T) {
	t.Parallel()
	p := newAsker(t, Options{})
	tensorMap := func(dataType, rank, swizzle int32) []any {
		parts := []any{dataType, rank, p.arena.base, 64, 32, 0, 0, 0, 128, 0, 0, 0, 0}
		for _, v := range []int32{64, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, swizzle, 0, 0} {
			parts = append(parts, v)
		}
		return parts
	}
	if data := p.want(success, requestTensorMap, tensorMap(6, 2, 3)...); len(data) != 128 {
		t.Errorf("a map of %d bytes", len(data))
	}
	p.want(invalidValue, requestTensorMap, tensorMap(6, 0, 3)...)
	p.want(invalidValue, requestTensorMap, tensorMap(6, 6, 3)...)
	if len(p.lines) > 0 {
		t.Errorf("%q", p.lines)
	}
	p.want(invalidValue, requestTensorMap, tensorMap(99, 2, 3)...)
	p.said("cuTensorMapEncodeTiled: ")
	p.want(invalidValue, requestTensorMap, tensorMap(6, 2, 3)[:7]...)
}

// TestShortRequests checks that no request panics or succeeds where its fields end early, whatever was
// before.
func TestShortRequests(t *testing.T) {
	t.Parallel()
	var crashes []*crash.Panic
	p := newAsker(t, Options{Crash: func(c *crash.Panic) { crashes = append(crashes, c) }})
	for request := range uint64(requestTextureFree + 3) {
		for n := range 24 {
			code, _ := p.ask(request, make([]byte, n))
			needsNone := request == requestLoad || request == requestUnload || request == requestMemory
			if n < 4 && code == success && !needsNone {
				t.Errorf("request %d of %d bytes succeeds", request, n)
			}
		}
	}
	if len(crashes) > 0 {
		t.Errorf("%v", crashes[0])
	}
	if len(p.lines) == 0 || p.lines[0] != "a request is shorter than its kind" {
		t.Errorf("%q", p.lines)
	}
	p.want(notSupported, 1000)
}

// TestCrash checks that a panic fails a request and no more.
func TestCrash(t *testing.T) {
	t.Parallel()
	var crashes []string
	p := newAsker(t, Options{Crash: func(c *crash.Panic) { crashes = append(crashes, c.Error()) }})
	p.functions = append(p.functions, nil)
	p.want(launchFailed, requestLaunch, int32(1), make([]byte, 44))
	p.want(success, requestMemory)
	if len(crashes) != 1 || len(p.outcome.Refused) != 1 || !strings.Contains(p.outcome.Refused[0].Why, "in a call of the program") {
		t.Errorf("%q, %+v", crashes, p.outcome.Refused)
	}
}

// TestUnsupported checks the lines about entry points that there are not.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	p := newAsker(t, Options{})
	for range 2 {
		p.want(notSupported, requestUnsupported, "cuMissing")
		p.said("cuMissing is not supported")
	}
	p.want(notSupported, requestUnsupported, exportTable)
	p.said("-cudart shared")
	if len(p.lines) != 2 || len(p.outcome.Unsupported) != 2 {
		t.Errorf("%q, %v", p.lines, p.outcome.Unsupported)
	}
}

// reportsSince asks for the reports since a place.
func (p *asker) reportsSince(place int) (next int, list []report) {
	p.t.Helper()
	var answer struct {
		Next    int
		Reports []struct {
			Line, Text string
			Process    int
			Finding    map[string]any
		}
	}
	if err := json.Unmarshal(p.want(success, requestReports, place), &answer); err != nil {
		p.t.Fatal(err)
	}
	for _, r := range answer.Reports {
		one := report{Line: r.Line, Text: r.Text, Process: r.Process}
		if r.Finding != nil {
			one.Finding = &Found{Kernel: r.Finding["kernel"].(string)}
		}
		list = append(list, one)
	}
	return answer.Next, list
}

// TestReports checks what a program learns about its launches.
func TestReports(t *testing.T) {
	t.Parallel()
	p := newAsker(t, Options{Checks: true, Describe: func(f *Found) string { return "about " + f.Kernel }})
	p.want(success, requestHello, int32(3))
	p.want(success, requestLoad, units)
	p.run("ends", one, one, none, 0)
	p.say("a line")
	next, list := p.reportsSince(0)
	if next != 2 || len(list) != 2 || list[0].Text != "about ends" || list[0].Process != 3 || list[0].Finding.Kernel != "ends" || list[1].Line != "a line" {
		t.Errorf("%d, %+v", next, list)
	}
	p.run("ends", one, one, none, 0) // a finding that is known is a report too
	if next, list := p.reportsSince(next); next != 3 || len(list) != 1 || list[0].Text != "about ends" {
		t.Errorf("%d, %+v", next, list)
	}
	if next, list := p.reportsSince(1000); next != 3 || len(list) != 0 {
		t.Errorf("%d, %+v", next, list)
	}
	p.options.Describe = func(*Found) string { return strings.Repeat("long ", mostReportsBytes/5) }
	if _, list := p.reportsSince(2); len(list) != 1 || list[0].Finding != nil || list[0].Line != "a finding is too long to be reported" || list[0].Process != 3 {
		t.Errorf("%+v", list)
	}
}

// TestManyReports checks that the newest reports are kept, and that an answer has a part of them.
func TestManyReports(t *testing.T) {
	t.Parallel()
	p := newAsker(t, Options{})
	const all = mostReports + 10
	for i := range all {
		p.say("line %d %s", i, strings.Repeat("-", 200))
	}
	next, list := p.reportsSince(0)
	if want := fmt.Sprintf("line %d ", mostReports/2); !strings.HasPrefix(list[0].Line, want) || next >= all {
		t.Errorf("the first is %q, the next %d", list[0].Line, next)
	}
	count := len(list)
	for next < all && len(list) > 0 {
		next, list = p.reportsSince(next)
		count += len(list)
	}
	if count != all-mostReports/2 {
		t.Errorf("%d reports", count)
	}
}

// TestRequests checks the frames of requests and replies.
func TestRequests(t *testing.T) {
	frame := body([]any{7, 3, "abc"})
	request, data, err := readRequest(bytes.NewReader(frame))
	if request != 7 || string(data) != "abc" || err != nil {
		t.Errorf("%d, %q, %v", request, data, err)
	}
	for n := range frame {
		if _, _, err := readRequest(bytes.NewReader(frame[:n])); err == nil {
			t.Errorf("%d bytes are a request", n)
		}
	}
	if _, _, err := readRequest(bytes.NewReader(nil)); err != io.EOF {
		t.Errorf("the end is %v", err)
	}
	if _, _, err := readRequest(bytes.NewReader(body([]any{7, maxRequest + 1}))); err == nil || !strings.Contains(err.Error(), "a request of 2147483649 bytes") {
		t.Errorf("%v", err)
	}
	var reply bytes.Buffer
	if err := writeReply(&reply, notFound, []byte("ab"), []byte("c")); err != nil || !bytes.Equal(reply.Bytes(), body([]any{int32(notFound), int32(2), int32(1), "abc"})) {
		t.Errorf("%v, %v", err, reply.Bytes())
	}
}

// TestAttributes checks what devices have.
func TestAttributes(t *testing.T) {
	for device, want := range map[string][4]int32{ // the capability, shared memory, threads and blocks of a multiprocessor
		"sm_80": {80, 163 << 10, 2048, 32}, "sm_86": {86, 99 << 10, 1536, 16}, "sm_89": {89, 99 << 10, 1536, 24},
		"sm_90a": {90, 227 << 10, 2048, 32}, "sm_100a": {100, 227 << 10, 2048, 32}, "sm_120": {120, 99 << 10, 1536, 24},
	} {
		a := attributesOf(device)
		if got := [4]int32{10*a[75] + a[76], a[97], a[39], a[106]}; got != want {
			t.Errorf("%s: %v, want %v", device, got, want)
		}
		if clusters := a[120] == 1; clusters != (want[0] >= 90 && want[0] < 120) {
			t.Errorf("%s: clusters %v", device, clusters)
		}
	}
}
