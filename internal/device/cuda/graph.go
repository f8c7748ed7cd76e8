package cuda

import (
	"errors"
	"fmt"

	"attune/internal/device"
)

// graph is an instantiated CUDA graph.
type graph struct {
	machine  *Machine
	exec     handle // CUgraphExec
	name     string // of the job, for errors
	launches int
	rotator  *rotator // nil for a graph without a rotation
}

// capture captures the steps n times as one graph.
func (m *Machine) capture(name string, n int, steps ...func() error) (*graph, error) {
	d, stream := m.driver, m.clock.stream
	g := &graph{machine: m, name: name, launches: n}
	err := m.do(func() error {
		if err := d.fault(d.cuStreamBeginCapture_v2(stream, captureThreadLocal), "begin to capture a graph"); err != nil {
			return err
		}
		stepErr := repeat(n, steps)
		var captured handle
		err := d.fault(d.cuStreamEndCapture(stream, &captured), "capture a graph")
		if captured != 0 {
			defer d.cuGraphDestroy(captured)
		}
		if stepErr != nil {
			return stepErr
		}
		if err != nil {
			return err
		}
		return d.fault(d.cuGraphInstantiateWithFlags(&g.exec, captured, 0), "instantiate a graph")
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

func repeat(n int, steps []func() error) error {
	for range n {
		for _, step := range steps {
			if err := step(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *graph) drop() {
	if g != nil {
		_ = g.machine.do(func() error { g.machine.driver.cuGraphExecDestroy(g.exec); return nil })
	}
}

// flush is a buffer larger than L2. Writing all of it evicts everything else from L2.
type flush struct {
	machine *Machine
	address device.Address
	bytes   int64
}

// flushL2Sizes is the size of the flush in multiples of L2. One is not enough, because L2 does not
// evict strictly the oldest lines.
const flushL2Sizes = 2

// newFlush allocates the buffer; it returns nil if the plan has a warm L2.
func (m *Machine) newFlush(plan device.Plan) (*flush, error) {
	if !plan.ColdL2 {
		return nil, nil
	}
	if m.facts.L2Bytes <= 0 {
		return nil, errors.New("the driver does not report the size of L2, so L2 cannot be flushed; use --l2 warm")
	}
	f := &flush{machine: m, bytes: flushL2Sizes * m.facts.L2Bytes}
	var err error
	if f.address, err = m.Alloc(int(f.bytes)); err != nil {
		return nil, fmt.Errorf("flush L2: %w", err)
	}
	return f, nil
}

// write is one flush on a clock's stream. It must run on the owner goroutine.
func (f *flush) write(c *clock) error {
	d := f.machine.driver
	return d.failure(d.cuMemsetD32Async(uint64(f.address), 0, uint64(f.bytes/4), c.stream), "flush L2")
}

func (f *flush) free() {
	if f != nil {
		_ = f.machine.Free(f.address) // fails after a fault; the caller returns the fault itself
	}
}

// emptyPTX is an empty kernel: its time is the cost of a graph node.
const emptyPTX = `.version 7.0
.target sm_80
.address_size 64
.visible .entry ` + emptyEntry + `()
{
	ret;
}
`

const emptyEntry = "attune_empty"

// emptyNode is the median time in seconds of an empty kernel as a graph node. The graph is as long
// as those of the shortest kernels.
func (m *Machine) emptyNode(launches int) (float64, error) {
	f, err := m.Load([]byte(emptyPTX), emptyEntry)
	if err != nil {
		return 0, err
	}
	launch := func() error { return m.launchEmpty(f.(function), m.clock) }
	g, err := m.capture(emptyEntry, launches, launch)
	if err != nil {
		return 0, err
	}
	defer g.drop()
	var all []float64
	for range emptyReplays {
		seconds, err := m.clock.replay(g, nil, g)
		if err != nil {
			return 0, err
		}
		all = append(all, seconds/float64(launches))
	}
	return median(all), nil
}

func (m *Machine) launchEmpty(f function, c *clock) error {
	return m.launch(f, c.stream, &device.Job{Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}}, nil)
}
