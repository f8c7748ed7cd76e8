package order

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// The clocks and the shadow are compared with the simplest model of happens-before. In the model
// every thread has a clock with an entry for every other thread, and every access is remembered.

const (
	modelWarps     = 3
	modelLanes     = 4 // lanes of each warp that have not ended
	modelAlive     = 1<<modelLanes - 1
	modelLocations = 3
	modelBytes     = 2 * Granule
)

type threadClock [modelWarps * modelLanes]int

func (c *threadClock) join(o *threadClock) {
	for i := range c {
		c[i] = max(c[i], o[i])
	}
}

type modelAccess struct {
	thread, time  int
	first, size   int
	write, strong bool
}

// execution runs the same events in the model and in the package.
type execution struct {
	random     *rand.Rand
	log        []string
	withStrong bool // some accesses are strong
	anyMask    bool // any subset of a warp may synchronise; otherwise all lanes, or one lane after a bar.warp.sync

	// The model.
	clocks    [modelWarps * modelLanes]threadClock
	published [modelLocations]threadClock
	past      []modelAccess

	// The package.
	warps     [modelWarps]Warp
	locations [modelLocations]Clock
	shadow    Shadow
}

func newExecution(seed uint64, withStrong, anyMask bool) *execution {
	e := &execution{random: rand.New(rand.NewPCG(seed, 3)), withStrong: withStrong, anyMask: anyMask}
	for i := range e.warps {
		e.warps[i] = NewWarp(0, i, modelWarps)
	}
	for i := range e.locations {
		e.locations[i] = NewClock(modelWarps)
	}
	e.shadow.Reset(modelBytes)
	return e
}

func (e *execution) logf(format string, args ...any) {
	e.log = append(e.log, fmt.Sprintf(format, args...))
}

// each calls f for the model clock of every thread of a mask.
func (e *execution) each(warp int, mask uint32, f func(*threadClock)) {
	for m := mask; m != 0; m &= m - 1 {
		f(&e.clocks[warp*modelLanes+firstLane(m)])
	}
}

func (e *execution) mask() uint32 {
	switch {
	case e.random.IntN(3) == 0:
		return modelAlive
	case e.anyMask:
		return 1 + e.random.Uint32N(modelAlive)
	}
	return 1 << e.random.IntN(modelLanes)
}

// sync executes one random synchronisation.
func (e *execution) sync() {
	warp, mask, location := e.random.IntN(modelWarps), e.mask(), e.random.IntN(modelLocations)
	if !e.anyMask {
		e.warpSync(warp, modelAlive)
	}
	switch e.random.IntN(5) {
	case 0:
		e.warpSync(warp, mask)
	case 1:
		e.logf("barrier")
		e.barrier([modelWarps]uint32{modelAlive, modelAlive, modelAlive})
	case 2:
		// A barrier for a subset of the threads.
		var masks [modelWarps]uint32
		masks[warp] = mask
		masks[(warp+1)%modelWarps] = e.mask()
		if !e.anyMask {
			e.warpSync((warp+1)%modelWarps, modelAlive)
		}
		e.logf("barrier of %#x", masks)
		e.barrier(masks)
	case 3:
		e.logf("warp %d: %#x release at %d", warp, mask, location)
		e.each(warp, mask, func(c *threadClock) { e.published[location].join(c) })
		e.warps[warp].Publish(&e.locations[location], mask, modelAlive)
	default:
		e.logf("warp %d: %#x acquire at %d", warp, mask, location)
		e.each(warp, mask, func(c *threadClock) { c.join(&e.published[location]) })
		e.warps[warp].Learn(&e.locations[location], mask, modelAlive)
	}
}

// warpSync is bar.warp.sync.
func (e *execution) warpSync(warp int, mask uint32) {
	e.logf("warp %d: bar.warp.sync %#x", warp, mask)
	var all threadClock
	e.each(warp, mask, func(c *threadClock) { all.join(c) })
	e.each(warp, mask, func(c *threadClock) { c.join(&all) })
	e.warps[warp].Sync(mask, modelAlive)
}

func (e *execution) barrier(masks [modelWarps]uint32) {
	var all threadClock
	together := NewClock(modelWarps)
	for warp, mask := range masks {
		if mask != 0 {
			e.each(warp, mask, func(c *threadClock) { all.join(c) })
			e.warps[warp].Publish(&together, mask, modelAlive)
		}
	}
	for warp, mask := range masks {
		if mask != 0 {
			e.each(warp, mask, func(c *threadClock) { c.join(&all) })
			e.warps[warp].Learn(&together, mask, modelAlive)
		}
	}
}

// access has one thread read or write, and reports whether the model and the package find a race.
func (e *execution) access() (model, shadow bool) {
	warp, lane := e.random.IntN(modelWarps), e.random.IntN(modelLanes)
	a := modelAccess{thread: warp*modelLanes + lane, write: e.random.IntN(2) == 0, strong: e.withStrong && e.random.IntN(2) == 0}
	a.size = 1 << e.random.IntN(6)
	a.first = e.random.IntN(modelBytes/a.size) * a.size
	verb, how := "reads", ""
	if a.write {
		verb = "writes"
	}
	if a.strong {
		how = " strongly"
	}
	e.logf("warp %d lane %d: %s%s %d bytes at %d", warp, lane, verb, how, a.size, a.first)
	own := &e.clocks[a.thread]
	own[a.thread]++
	a.time = own[a.thread]
	for _, p := range e.past {
		disjoint := p.first+p.size <= a.first || a.first+a.size <= p.first
		if !disjoint && (p.write || a.write) && !(p.strong && a.strong) && own[p.thread] < p.time {
			model = true
		}
	}
	e.past = append(e.past, a)
	flags := Async // for Reads, which tensor cores use; fences do not matter here
	if a.strong {
		flags |= Strong
	}
	o := e.warps[warp].Observer(1, uint8(lane), 0, flags)
	switch {
	case a.write:
		_, shadow = e.shadow.Write(a.first, a.size, &o, nil)
	default:
		reads := e.shadow.NewReads(&o, &o.Access)
		if a.size != Granule || !reads.Granule(a.first/Granule) {
			_, shadow = e.shadow.Read(a.first, a.size, &o)
		}
		reads.Close()
	}
	return model, shadow
}

// TestHappensBefore executes random events until the model or the package finds a race. The other
// must find it too.
func TestHappensBefore(t *testing.T) {
	t.Parallel()
	executions := 8000
	if testing.Short() {
		executions = 2000
	}
	check := func(name string, withStrong, anyMask bool) {
		races := 0
		for seed := range uint64(executions) {
			e := newExecution(seed, withStrong, anyMask)
			for range 12 {
				for range e.random.IntN(6) {
					e.sync()
				}
				model, shadow := e.access()
				if model != shadow {
					t.Fatalf("%s, seed %d: race in the model: %v, in the shadow: %v\n%s", name, seed, model, shadow, strings.Join(e.log, "\n"))
				}
				if model {
					races++
					break
				}
			}
		}
		if races < executions/3 || races == executions { // such executions would show nothing
			t.Errorf("%s: %d races in %d executions", name, races, executions)
		}
	}
	check("plain accesses, warps and single lanes", false, false)
	check("plain accesses, subsets of warps", false, true)
	check("strong accesses too, warps and single lanes", true, false)
	check("strong accesses too, subsets of warps", true, true)
}

// TestKnowing asks which lanes know what a clock knows, of their own block and of another one.
func TestKnowing(t *testing.T) {
	const all = 0xf
	a, b := NewWarp(0, 0, 2), NewWarp(0, 1, 2)
	check := func(step string, c *Clock, want uint32) {
		t.Helper()
		if got := b.Knowing(c, all, all); got != want {
			t.Errorf("%s: lanes %#x know it, want %#x", step, got, want)
		}
	}
	own := NewClock(2)
	b.Publish(&own, 1, all)
	check("published by lane 0 of the warp itself", &own, 1)
	other := NewClock(2)
	a.Publish(&other, all, all)
	check("published by another warp", &other, 0)
	b.Learn(&other, 2, all)
	check("learned by lane 1", &other, 2)
	b.Learn(&other, all, all)
	check("learned by all", &other, all)
	far := NewClock(2)
	c := NewWarp(7, 0, 2)
	c.Publish(&far, all, all)
	imported := NewClock(2)
	imported.Import(0, far.Export(7))
	check("published by another block", &imported, 0)
	b.Learn(&imported, 4, all)
	check("learned of another block by lane 2", &imported, 4)
	c.Publish(&far, all, all)
	later := NewClock(2)
	later.Import(0, far.Export(7))
	check("published later by that block", &later, 0)
}
