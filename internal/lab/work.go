package lab

import "attune/internal/spec"

// work estimates how much of a plan is finished, for the time that is left. The unit is arbitrary.
type work struct {
	plan    *plan
	timed   bool
	entry   int // index in the plan
	done    float64
	entries []float64 // work of each entry
	total   float64
}

func newWork(p *plan, timed bool) *work {
	w := &work{plan: p, timed: timed}
	for _, e := range p.entries {
		sum := 0.0
		for _, part := range e.parts {
			for _, i := range p.instances(part.variant, part.shapes) {
				sum += w.ofInstance(i.Shape)
			}
			if timed {
				sum += float64(len(part.shapes)) * w.ofTiming()
			}
		}
		w.entries = append(w.entries, sum)
		w.total += sum
	}
	return w
}

// ofInstance is the work to check one output. The simulator's time grows with the arithmetic; a GPU
// takes about the same time for every shape.
func (w *work) ofInstance(shape spec.Shape) float64 {
	if w.timed {
		return 1
	}
	const overhead = 4e6 // FLOP that the simulator would execute in the time of a launch without any
	return overhead + w.plan.problem().Size(shape)
}

// ofTiming is the work to time one shape: about three checks.
func (w *work) ofTiming() float64 { return 3 }

// begin sets the work that is done to that of all entries before one, whatever they reused or
// skipped after a failure.
func (w *work) begin(entry int) {
	w.entry, w.done = entry, 0
	for _, sum := range w.entries[:entry] {
		w.done += sum
	}
}

func (w *work) add(done float64) { w.done += done }

// describe adds the position in the plan to a step.
func (w *work) describe(p *Progress) {
	p.Entry, p.Entries, p.Name = w.entry+1, len(w.entries), w.plan.entries[w.entry].name
	if w.total > 0 {
		p.Share = min(1, w.done/w.total)
	}
}
