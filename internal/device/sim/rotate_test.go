package sim_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim"
	"attune/internal/sim/mem"
	"attune/internal/tensormap"
)

// simMachine is a device.Machine on the simulator. Every launch runs with all checkers, and each
// with another schedule.
type simMachine struct {
	t       *testing.T
	memory  *mem.Memory
	program *sim.Program
	seed    uint64
}

type simFunction string // its entry

func (simFunction) Attributes() (device.Attributes, error) { return device.Attributes{}, nil }

// rotations loads the kernels with which package cuda rotates and compares buffers.
func rotations(t *testing.T) *simMachine {
	t.Helper()
	text, err := os.ReadFile("../cuda/rotate.ptx")
	if err != nil {
		t.Fatal(err)
	}
	module, err := ptx.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	program, err := sim.Load(module, "")
	if err != nil {
		t.Fatal(err)
	}
	return &simMachine{t: t, memory: mem.NewMemory(), program: program}
}

func (m *simMachine) Facts() device.Facts { return device.Facts{Kind: "sim"} }
func (m *simMachine) Close() error        { return nil }

func (m *simMachine) Load(_ []byte, entry string) (device.Function, error) {
	return simFunction(entry), nil
}

func (m *simMachine) Alloc(size int) (device.Address, error) {
	base, err := m.memory.Alloc(finding.Variable{Name: fmt.Sprintf("%d bytes", size)}, size)
	return device.Address(base), err
}

func (m *simMachine) Free(a device.Address) error { return m.memory.Free(uint64(a)) }

func (m *simMachine) Write(to device.Address, data []byte) error {
	return m.memory.Write(uint64(to), data)
}

func (m *simMachine) Read(data []byte, from device.Address) error {
	return m.memory.Read(data, uint64(from))
}

func (m *simMachine) EncodeTensorMap(*tensormap.Map, device.Address) ([]byte, error) {
	return make([]byte, tensormap.Bytes), nil
}

func (m *simMachine) Launch(f device.Function, job *device.Job, args [][]byte) error {
	entry := string(f.(simFunction))
	params, err := m.program.Params(entry, args)
	if err != nil {
		return err
	}
	m.seed++
	launch := sim.Launch{Entry: entry, Grid: job.Grid, Block: job.Block, Params: params}
	result, err := m.program.Run(m.t.Context(), m.memory, launch, sim.Options{Seed: m.seed, Checks: true})
	if err == nil && len(result.Findings) > 0 {
		err = fmt.Errorf("%s: %v", entry, result.Findings)
	}
	return err
}

// run launches a kernel.
func (m *simMachine) run(entry string, blocks, threads int, args ...[]byte) {
	m.t.Helper()
	job := device.Job{Grid: [3]int{blocks, 1, 1}, Block: [3]int{threads, 1, 1}}
	if err := m.Launch(simFunction(entry), &job, args); err != nil {
		m.t.Fatal(err)
	}
}

// store allocates memory with these bytes.
func (m *simMachine) store(data []byte) device.Address {
	m.t.Helper()
	address, err := m.Alloc(len(data))
	if err == nil {
		err = m.Write(address, data)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return address
}

func (m *simMachine) bytes(from device.Address, size int) []byte {
	m.t.Helper()
	data := make([]byte, size)
	if err := m.Read(data, from); err != nil {
		m.t.Fatal(err)
	}
	return data
}

func (m *simMachine) bind(job device.Job) []*device.Buffer {
	m.t.Helper()
	buffers, _, err := device.Bind(m, job)
	if err != nil {
		m.t.Fatal(err)
	}
	return buffers
}

func u32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }

func u64(all ...uint64) []byte {
	var data []byte
	for _, v := range all {
		data = binary.LittleEndian.AppendUint64(data, v)
	}
	return data
}

// randomBytes differ with the seed.
func randomBytes(size int, seed uint64) []byte {
	data := make([]byte, size)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return data
}

// rotating is a job with buffers of every role and unit. Most have more units than a launch has
// threads, some have fewer.
func rotating() device.Job {
	job := device.Job{Entry: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Args: []device.Arg{
		device.Rotating(randomBytes(16*150, 1), 16), device.Rotating(randomBytes(16*5, 2), 16), device.Rotating(randomBytes(16, 3), 16),
		device.Int32(7),
		device.Rotating(randomBytes(4*201, 4), 4), device.Rotating(randomBytes(4*3, 5), 4),
		device.Rotating(randomBytes(333, 6), 1), device.Rotating(randomBytes(1, 7), 1),
		device.Out(16 * 140), device.Out(4 * 205), device.Out(203), device.Out(1),
		{InOut: randomBytes(16*9, 8)},
		{InOut: randomBytes(4*7, 9)},
		{InOut: randomBytes(5, 10)},
	}}
	for i, bytes := range []int{16 * 3, 4 * 5, 3} {
		job.Args = append(job.Args, device.In(randomBytes(bytes, uint64(20+i))))
	}
	return job
}

// expectRotated compares the buffers of a copy with the rotation that package device computes.
func (m *simMachine) expectRotated(name string, job device.Job, copied []*device.Buffer, r device.Rotation) {
	m.t.Helper()
	want := job.Rotate(r)
	next := 0
	for i, arg := range want.Args {
		if !arg.IsBuffer() {
			continue
		}
		b := copied[next]
		next++
		content := append(append([]byte{}, arg.Input...), arg.InOut...)
		if arg.Output > 0 {
			content = bytes.Repeat([]byte{r.Poison(i)}, arg.Output)
		}
		if got := m.bytes(b.Start(), b.Size()); !bytes.Equal(got, content) {
			m.t.Errorf("%s, %+v: argument %d is\n%x; want\n%x", name, r, i, got, content)
		}
	}
	if findings, err := device.InspectGuards(m, copied); err != nil || len(findings) > 0 {
		m.t.Errorf("%s, %+v: %v, %v", name, r, findings, err)
	}
}

// The kernels that rotate buffers on a GPU compute the same as package device.
func TestRotateKernel(t *testing.T) {
	t.Parallel()
	m, job := rotations(t), rotating()
	originals, copied := m.bind(job), m.bind(job)
	entries := device.RotationTable(job, copied, originals)
	table := m.store(entries)
	for i, r := range []device.Rotation{
		{},
		{Secret: 1, Count: 1, Step: 0},
		{Secret: 1, Count: 1, Step: 1},
		{Secret: 1, Count: 2, Step: 1},
		{Secret: 0x123456789ABCDEF0, Count: 1000, Step: 49},
		{Secret: math.MaxUint64, Count: math.MaxUint64, Step: math.MaxUint32},
	} {
		blocks, threads := 1+i%3, []int{32, 33, 1, 64}[i%4]
		state := m.store(u64(r.Count, r.Secret))
		for _, b := range copied { // as after a launch
			if err := m.Write(b.Start(), bytes.Repeat([]byte{0x11}, b.Size())); err != nil {
				t.Fatal(err)
			}
		}
		m.run("attune_rotate", blocks, threads, u64(uint64(table)), u32(uint32(len(copied))), u64(uint64(state)), u32(r.Step))
		m.expectRotated(fmt.Sprintf("%d blocks of %d threads", blocks, threads), job, copied, r)
		if got := m.bytes(state, 16); !bytes.Equal(got, u64(r.Count, r.Secret)) {
			t.Errorf("%+v: the state is %x afterwards", r, got)
		}
	}
	if got := m.bytes(table, len(entries)); !bytes.Equal(got, entries) {
		t.Error("the table has changed")
	}
	if findings, err := device.InspectGuards(m, originals); err != nil || len(findings) > 0 {
		t.Errorf("the originals: %v, %v", findings, err)
	}
	if n := len(originals); !bytes.Equal(m.bytes(originals[0].Start(), 16*150), job.Args[0].Input) ||
		!bytes.Equal(m.bytes(originals[n-1].Start(), 3), job.Args[len(job.Args)-1].Input) {
		t.Error("the originals have changed")
	}
}

// Rotations in a graph share the count: one advance, then a rotation for each step.
func TestAdvanceKernel(t *testing.T) {
	t.Parallel()
	m := rotations(t)
	job := device.Job{Entry: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Args: []device.Arg{
		device.Rotating(randomBytes(64*4, 1), 4), device.Out(20),
	}}
	const secret = 0xFEDCBA9876543210
	originals, copies := m.bind(job), [][]*device.Buffer{m.bind(job), m.bind(job)}
	var tables []device.Address
	for _, copied := range copies {
		tables = append(tables, m.store(device.RotationTable(job, copied, originals)))
	}
	state := m.store(u64(1<<32-2, secret))
	for round := range uint64(4) {
		m.run("attune_advance", 1, 1, u64(uint64(state)))
		count := 1<<32 - 2 + round + 1
		if got := m.bytes(state, 16); !bytes.Equal(got, u64(count, secret)) {
			t.Fatalf("after %d advances the state is %x", round+1, got)
		}
		for step := range 3 {
			i := step % len(copies)
			m.run("attune_rotate", 2, 32, u64(uint64(tables[i])), u32(2), u64(uint64(state)), u32(uint32(step)))
			m.expectRotated("a copy", job, copies[i], device.Rotation{Secret: secret, Count: count, Step: uint32(step)})
		}
	}
	// A rotation of no buffers does nothing.
	m.run("attune_rotate", 1, 32, u64(uint64(tables[0])), u32(0), u64(uint64(state)), u32(5))
	m.expectRotated("no buffers", job, copies[0], device.Rotation{Secret: secret, Count: 1<<32 + 2, Step: 2})
}

// differences is the comparison that the kernel must compute.
func differences(a, b []byte) device.Differences {
	d := device.Differences{First: -1}
	for i := range a {
		if a[i] != b[i] {
			if d.Bytes == 0 {
				d.First = i
			}
			d.Bytes++
		}
	}
	return d
}

func TestCompareKernel(t *testing.T) {
	t.Parallel()
	m := rotations(t)
	change := func(data []byte, at ...int) []byte {
		data = bytes.Clone(data)
		for _, i := range at {
			data[i] ^= 0x80
		}
		return data
	}
	long := randomBytes(1000, 1)
	pairs := [][2][]byte{
		{long, long},
		{long, change(long, 0)},
		{long, change(long, 999)},
		{long, change(long, 998, 500, 501, 77, 640)},
		{long, randomBytes(1000, 2)},
		{{1}, {1}},
		{{1}, {2}},
		{{1, 2, 3}, {1, 2, 4}},
	}
	var table, results []byte
	var want []device.Differences
	for _, p := range pairs {
		table = append(table, u64(uint64(m.store(p[0])), uint64(m.store(p[1])), uint64(len(p[0])))...)
		results = append(results, u64(0, math.MaxUint64)...)
		want = append(want, differences(p[0], p[1]))
	}
	for _, size := range [][2]int{{1, 1}, {1, 32}, {3, 33}, {2, 128}} {
		address := m.store(results)
		m.run("attune_compare", size[0], size[1], u64(uint64(m.store(table))), u32(uint32(len(pairs))), u64(uint64(address)))
		var got []device.Differences
		data := m.bytes(address, len(results))
		for i := range pairs {
			entry := data[16*i:]
			got = append(got, device.Differences{
				Bytes: int(binary.LittleEndian.Uint64(entry)), First: int(binary.LittleEndian.Uint64(entry[8:])),
			})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d blocks of %d threads: %s", size[0], size[1], diff)
		}
	}
}
