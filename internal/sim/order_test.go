package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// The clocks and the shadow are held against the plainest model of happens-before there is: every thread has a clock with an entry for every other
// thread, and every access that was ever made is remembered.

// modelLanes are the lanes of each warp of the model; the others have ended.
const (
	modelWarps  = 3
	modelLanes  = 4
	modelAlive  = 1<<modelLanes - 1
	modelPlaces = 3
	modelBytes  = 2 * granule
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

// world is the same happenings twice: as the model sees them and as the simulator does.
type world struct {
	random  *rand.Rand
	story   []string
	strongs bool // some accesses are strong
	parts   bool // any part of a warp may do things together; otherwise a warp does, or one lane does it for the warp behind a bar.warp.sync

	clocks [modelWarps * modelLanes]threadClock
	places [modelPlaces]threadClock
	past   []modelAccess

	knows  [modelWarps]knowledge
	told   [modelPlaces]clock
	shadow shadow
}

func newWorld(seed uint64, strongs, parts bool) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 3)), strongs: strongs, parts: parts}
	for i := range w.knows {
		w.knows[i] = newKnowledge(i, modelWarps)
	}
	for i := range w.told {
		w.told[i] = newClock(modelWarps)
	}
	w.shadow.reset(modelBytes)
	return w
}

func (w *world) tell(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf(format, args...))
}

// each calls f for the threads of a warp's mask.
func (w *world) each(warp int, mask uint32, f func(*threadClock)) {
	for m := mask; m != 0; m &= m - 1 {
		f(&w.clocks[warp*modelLanes+firstLane(m)])
	}
}

func (w *world) mask() uint32 {
	switch {
	case w.random.IntN(3) == 0:
		return modelAlive
	case w.parts:
		return 1 + w.random.Uint32N(modelAlive)
	}
	return 1 << w.random.IntN(modelLanes)
}

// sync lets one of the ways happen by which threads learn of each other.
func (w *world) sync() {
	warp, mask, place := w.random.IntN(modelWarps), w.mask(), w.random.IntN(modelPlaces)
	if !w.parts {
		w.meet(warp, modelAlive)
	}
	switch w.random.IntN(5) {
	case 0:
		w.meet(warp, mask)
	case 1:
		w.tell("barrier")
		w.barrier([modelWarps]uint32{modelAlive, modelAlive, modelAlive})
	case 2:
		// A barrier to which only some come.
		var masks [modelWarps]uint32
		masks[warp] = mask
		masks[(warp+1)%modelWarps] = w.mask()
		if !w.parts {
			w.meet((warp+1)%modelWarps, modelAlive)
		}
		w.tell("barrier of %#x", masks)
		w.barrier(masks)
	case 3:
		w.tell("warp %d: %#x release at %d", warp, mask, place)
		w.each(warp, mask, func(c *threadClock) { w.places[place].join(c) })
		w.knows[warp].publish(&w.told[place], mask, modelAlive)
	default:
		w.tell("warp %d: %#x acquire at %d", warp, mask, place)
		w.each(warp, mask, func(c *threadClock) { c.join(&w.places[place]) })
		w.knows[warp].learn(&w.told[place], mask, modelAlive)
	}
}

// meet is bar.warp.sync.
func (w *world) meet(warp int, mask uint32) {
	w.tell("warp %d: bar.warp.sync %#x", warp, mask)
	var all threadClock
	w.each(warp, mask, func(c *threadClock) { all.join(c) })
	w.each(warp, mask, func(c *threadClock) { c.join(&all) })
	w.knows[warp].meet(mask, modelAlive)
}

func (w *world) barrier(masks [modelWarps]uint32) {
	var all threadClock
	together := newClock(modelWarps)
	for warp, mask := range masks {
		if mask != 0 {
			w.each(warp, mask, func(c *threadClock) { all.join(c) })
			w.knows[warp].publish(&together, mask, modelAlive)
		}
	}
	for warp, mask := range masks {
		if mask != 0 {
			w.each(warp, mask, func(c *threadClock) { c.join(&all) })
			w.knows[warp].learn(&together, mask, modelAlive)
		}
	}
}

// access lets one thread read or write, and says who finds that a race.
func (w *world) access() (model, simulator bool) {
	warp, lane := w.random.IntN(modelWarps), w.random.IntN(modelLanes)
	a := modelAccess{thread: warp*modelLanes + lane, write: w.random.IntN(2) == 0, strong: w.strongs && w.random.IntN(2) == 0}
	a.size = 1 << w.random.IntN(6)
	a.first = w.random.IntN(modelBytes/a.size) * a.size
	verb, how := "reads", ""
	if a.write {
		verb = "writes"
	}
	if a.strong {
		how = " strongly"
	}
	w.tell("warp %d lane %d: %s%s %d bytes at %d", warp, lane, verb, how, a.size, a.first)
	own := &w.clocks[a.thread]
	own[a.thread]++
	a.time = own[a.thread]
	for _, e := range w.past {
		apart := e.first+e.size <= a.first || a.first+a.size <= e.first
		if !apart && (e.write || a.write) && !(e.strong && a.strong) && own[e.thread] < e.time {
			model = true
		}
	}
	w.past = append(w.past, a)
	o := observer{
		access: access{epoch: w.knows[warp].epoch, op: 1, warp: uint16(warp), lane: uint8(lane), flags: present},
		clock:  w.knows[warp].of(uint8(lane)),
	}
	if a.strong {
		o.flags |= strong
	}
	o.flags |= async // for the short way of products, which is not about fences here
	switch {
	case a.write:
		_, simulator = w.shadow.writeBytes(a.first, a.size, &o, nil)
	case a.size == granule && w.shadow.readGranule(a.first/granule, &o, &access{}):
	default:
		_, simulator = w.shadow.readBytes(a.first, a.size, &o)
	}
	return model, simulator
}

// TestHappensBefore lets random things happen until one side sees a race: the other must see it too.
func TestHappensBefore(t *testing.T) {
	t.Parallel()
	stories := 8000
	if testing.Short() {
		stories = 2000
	}
	// exact says that no race is seen where there is none; in all stories none may be missed.
	check := func(name string, strongs, parts, exact bool) {
		races := 0
		for seed := range uint64(stories) {
			w := newWorld(seed, strongs, parts)
			for range 12 {
				for range w.random.IntN(6) {
					w.sync()
				}
				model, simulator := w.access()
				if model && !simulator || exact && simulator && !model {
					t.Fatalf("%s, seed %d: a race says the model: %v, the simulator: %v\n%s", name, seed, model, simulator, strings.Join(w.story, "\n"))
				}
				if model || simulator {
					races++
					break
				}
			}
		}
		if races < stories/3 || races == stories { // such stories would say nothing
			t.Errorf("%s: %d races in %d stories", name, races, stories)
		}
	}
	check("plain accesses, warps and single lanes", false, false, true)
	check("plain accesses, parts of warps", false, true, true)
	check("strong accesses too, warps and single lanes", true, false, true)
	check("strong accesses too, parts of warps", true, true, true)
}
