package document

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"attune/internal/gate"
	"attune/internal/profile"
	"attune/internal/run"
)

// advice is a next step: what the record shows, what to do, and how much it can give at most.
type advice struct {
	cause, next Text
	gain        Span // a speedup; missing if the record does not bound it
	factor      float64
	effort      profile.Effort
	first       bool // nothing else counts before it is done
	last        bool // of low priority, because it is not about the kernel
}

// Bounds of the gain, as a speedup, from which a step has high or medium priority.
const highGain, mediumGain = 1.5, 1.1

func (a advice) priority() string {
	switch {
	case a.last:
		return "low"
	case a.first || a.factor >= highGain:
		return "high"
	case a.factor >= mediumGain:
		return "medium"
	}
	return "low"
}

// nextSteps applies every rule to the record. The rules only read recorded figures.
func (s *RunStudy) nextSteps() Section {
	section := Section{ID: "next", Title: say("Next steps"), Depth: Long}
	var all []advice
	for _, rule := range []func(*RunStudy) []advice{
		failures, unsimulated, shortfall, fasterPeer, fasterParent, launchCost, launchFloor, ceilingShare, spills, counters, unprofiled, throttling, slowTail, uncommitted,
	} {
		all = append(all, rule(s)...)
	}
	if len(all) == 0 {
		return section
	}
	rank := map[string]int{"high": 0, "medium": 1, "low": 2}
	slices.SortStableFunc(all, func(a, b advice) int {
		return cmp.Or(rank[a.priority()]-rank[b.priority()], cmp.Compare(b.factor, a.factor))
	})
	t := Table{Columns: columns("priority", "what the record shows", "next step", "gain, at most", "effort")}
	for _, a := range all {
		gain := cell(a.gain)
		if a.gain.Format != "" {
			gain = say(a.gain, "x")
		}
		t.Rows = append(t.Rows, []Text{say(a.priority()), a.cause, a.next, gain, say(string(a.effort))})
	}
	section.Blocks = []Block{
		say("Each step follows from a rule on recorded figures. The gain is an upper bound by these figures: if the cause went away and nothing else became the limit. " +
			"A dash means that no figure bounds it. Only a run shows what a step gives."), t,
	}
	return section
}

// failures: a gate that failed comes before any speed.
func failures(s *RunStudy) []advice {
	r, from := s.Run, runRecord(s.Run.ID)
	var next Text
	switch {
	case r.Verdict == gate.Incorrect && r.Requested.Simulation != nil:
		next = s.localise()
	case r.Verdict == gate.Incorrect && r.Simulated != nil && len(r.Simulated.Wrong) > 0:
		next = say("correct what the simulator found: ", s.simulateAlone())
	case r.Verdict == gate.Incorrect:
		next = say("find the first wrong output with `attune sim` or `attune run --device sim`, and correct it")
	case unbuilt(r):
		next = say("correct what the compiler reports")
	case r.Verdict == gate.OverBudget:
		next = say("reduce what the kernel needs: smaller tiles, fewer stages in flight, or fewer live registers")
	default:
		return nil
	}
	cause := say("the verdict is ", from.text(string(r.Verdict), "verdict"))
	if reason := causeOf(r); reason.Text != "" {
		cause = cell(reason)
	}
	return []advice{{cause: cause, next: next, gain: missing, effort: profile.Medium, first: true}}
}

// unsimulated: a kernel that the simulator did not check may still have defects that outputs do not
// show.
func unsimulated(s *RunStudy) []advice {
	r, from := s.Run, runRecord(s.Run.ID)
	why := r.NotSimulated()
	switch {
	case why == "" || r.Gates.Correctness != gate.Pass || r.Simulated != nil && len(r.Simulated.Sanitized) > 0:
		return nil
	case r.Requested.NoSim:
		next := say("run it without `" + run.NoSimFlag + "`; a run with it cannot be promoted")
		return []advice{{cause: say("the simulator did not check the code: ", from.summary(run.NoSimFlag, "asked.no_sim")), next: next, gain: missing, effort: profile.Small}}
	}
	command := fmt.Sprintf("attune run %s --sanitizer auto%s", run.ShellWord(r.Variant), s.Commands.kernelFlag(r.Kernel))
	return []advice{{
		cause: say("the simulator cannot run ", from.text(firstLine(why), "simulated.refused")), next: say("check it with compute-sanitizer: ", Span{Text: command, Code: true}),
		gain: missing, effort: profile.Small,
	}}
}

// simulateAlone is the command that repeats what the simulator did beside a GPU, with all details.
func (s *RunStudy) simulateAlone() Span {
	r := s.Run
	command := fmt.Sprintf("attune run %s --device sim -v", run.ShellWord(r.Variant))
	if shapes := r.Simulated.Shapes; len(shapes) > 0 {
		command += " --shapes " + run.ShellWord(strings.Join(shapes, ","))
	}
	return Span{Text: command + s.Commands.kernelFlag(r.Kernel), Code: true}
}

// localise is the step after a failure on the simulator: the first wrong shape alone, with the details
// of its findings or errors.
func (s *RunStudy) localise() Text {
	r := s.Run
	for _, c := range r.Correctness {
		if c.Pass {
			continue
		}
		what := "find the first wrong element"
		if len(c.Findings) > 0 {
			what = "correct the line that the finding names"
		}
		command := fmt.Sprintf("attune run %s --device sim --shapes %s --seeds %d -v", run.ShellWord(r.Variant), run.ShellWord(shapeLabel(c.Shape, c.ShapeName)), c.Seed)
		return say(what, "; the first wrong shape alone, with its details: ", Span{Text: command + s.Commands.kernelFlag(r.Kernel), Code: true})
	}
	return say("correct what the reason names; `attune sim` runs the kernel alone")
}

// shortfall: the speedup that is missing to what was required.
func shortfall(s *RunStudy) []advice {
	r, from := s.Run, runRecord(s.Run.ID)
	if r.Speedup == nil || r.RequiredSpeedup <= r.Speedup.Ratio || r.Gates.Performance != gate.Fail {
		return nil
	}
	factor := r.RequiredSpeedup / r.Speedup.Ratio
	return []advice{{
		cause: say("the speedup is ", from.figure("%.3f", r.Speedup.Ratio, "speedup.ratio"), "x, and ", from.figure("%.2f", r.RequiredSpeedup, "required_speedup"),
			"x was required: ", derived("%.2f", factor, from.key("required_speedup")+" / "+from.key("speedup.ratio")), "x is missing"),
		next: say("keep the record as a valid experiment, or find the missing factor in another step; the requirement stays"),
		gain: missing, factor: factor, effort: profile.Large,
	}}
}

// fasterPeer: a shape on which another implementation is faster.
func fasterPeer(s *RunStudy) []advice {
	if s.Bench == nil {
		return nil
	}
	b, from := s.Bench, benchRecord(s.Bench.ID)
	slowest, at, factor := -1, -1, 1.0
	for i, row := range b.Rows {
		if row.Peer || row.Name != s.Run.Variant || row.P50US == nil {
			continue
		}
		for _, j := range fastestPeers(b, row.Shape) {
			if f := *row.P50US / *b.Rows[j].P50US; f > factor {
				slowest, at, factor = i, j, f
			}
		}
	}
	if slowest < 0 {
		return nil
	}
	own, peer := from.key("rows.%d.p50_us", slowest), from.key("rows.%d.p50_us", at)
	return []advice{{
		cause: say("on ", shapeOf(from, b.Rows[slowest].Shape, b.Rows[slowest].ShapeName, "rows", slowest), " ", from.text(b.Rows[at].Name, "rows.%d.name", at), " takes ",
			derived("%.2f", *b.Rows[at].P50US, peer), " us, and this kernel ", derived("%.2f", *b.Rows[slowest].P50US, own), " us"),
		next: say("profile this shape, and search its knobs with `attune tune`"),
		gain: derived("%.2f", factor, own+" / "+peer), factor: factor, effort: profile.Medium,
	}}
}

// fasterParent: a shape on which the parent is faster.
func fasterParent(s *RunStudy) []advice {
	r, from := s.Run, runRecord(s.Run.ID)
	at, factor := -1, 1.02 // less is noise
	for i, p := range r.Performance {
		if p.ParentRatio != nil && *p.ParentRatio > 0 && 1 / *p.ParentRatio > factor {
			at, factor = i, 1 / *p.ParentRatio
		}
	}
	if at < 0 {
		return nil
	}
	p := r.Performance[at]
	return []advice{{
		cause: say("on ", shapeOf(from, p.Shape, p.ShapeName, "performance", at), " it is ",
			from.figure("%.3f", *p.ParentRatio, "performance.%d.parent_ratio", at), "x as fast as its parent"),
		next: say("let a selection take the parent on such shapes"),
		gain: derived("%.2f", factor, "1 / "+from.key("performance.%d.parent_ratio", at)), factor: factor, effort: profile.Small,
	}}
}

// launchCost: a launch outside a graph costs more than the kernel.
func launchCost(s *RunStudy) []advice {
	r, from := s.Run, runRecord(s.Run.ID)
	i := headlineRow(r)
	if i < 0 || r.Performance[i].SingleUS == nil || *r.Performance[i].SingleUS < 2*r.Performance[i].P50US {
		return nil
	}
	p := r.Performance[i]
	factor := *p.SingleUS / p.P50US
	return []advice{{
		cause: say("a single launch outside a graph takes ", from.figure("%.2f", *p.SingleUS, "performance.%d.single_launch_us", i), " us, and ",
			from.figure("%.2f", p.P50US, "performance.%d.p50_us", i), " us inside one"),
		next: say("launch it from a CUDA graph, where the caller can"),
		gain: derived("%.2f", factor, from.key("performance.%d.single_launch_us", i)+" / "+from.key("performance.%d.p50_us", i)), factor: factor,
		effort: profile.Small, last: true,
	}}
}

// launchFloor: an empty kernel takes a good part of the time.
func launchFloor(s *RunStudy) []advice {
	r, from := s.Run, runRecord(s.Run.ID)
	i := headlineRow(r)
	if i < 0 || r.Performance[i].EmptyNodeUS == nil || *r.Performance[i].EmptyNodeUS < 0.25*r.Performance[i].P50US {
		return nil
	}
	p := r.Performance[i]
	factor := p.P50US / *p.EmptyNodeUS
	return []advice{{
		cause: say("an empty kernel takes ", from.figure("%.2f", *p.EmptyNodeUS, "performance.%d.empty_node_us", i), " us of the ",
			from.figure("%.2f", p.P50US, "performance.%d.p50_us", i), " us"),
		next: say("merge it with the kernels before or after it; a faster kernel alone gains little here"),
		gain: derived("%.2f", factor, from.key("performance.%d.p50_us", i)+" / "+from.key("performance.%d.empty_node_us", i)), factor: factor, effort: profile.Large,
	}}
}

// headlineRow is the index of the times on the headline shape.
func headlineRow(r *run.Run) int {
	if r.Headline == nil {
		return -1
	}
	return performanceOn(r, r.Headline.Shape)
}

// ceilingShare: the nearest ceiling of the device, on the shape that comes nearest to it.
func ceilingShare(s *RunStudy) []advice {
	best := advice{factor: math.Inf(1)}
	for _, b := range []*run.Bench{s.Bench, s.Sweep} {
		if b == nil || b.Ceilings == nil {
			continue
		}
		from := benchRecord(b.ID)
		for i, row := range b.Rows {
			if row.Peer || row.Name != s.Run.Variant || row.Shares == nil {
				continue
			}
			c := nearest(row)
			if c.share <= 0 || 1/c.share >= best.factor {
				continue
			}
			source := from.key("rows.%d.shares.%s", i, c.key)
			best = advice{
				cause: say("its best shape, ", shapeOf(from, row.Shape, row.ShapeName, "rows", i), ", is at ", derived("%.0f", 100*c.share, "100 * "+source), " % of ", c.name),
				next:  say("profile that shape to see which unit is idle, and why"),
				gain:  derived("%.2f", 1/c.share, "1 / "+source), factor: 1 / c.share, effort: profile.Large,
			}
		}
	}
	if best.cause == nil {
		return nil
	}
	return []advice{best}
}

// spills: registers that were spilled to local memory.
func spills(s *RunStudy) []advice {
	r, from := s.Run, runRecord(s.Run.ID)
	if r.Build == nil || r.Build.Resources.SpillBytes() == 0 {
		return nil
	}
	n := r.Build.Resources.SpillBytes()
	return []advice{{
		cause: say(Span{
			Text: fmt.Sprint(n), Format: "%.0f", Source: from.key("build.resources.spill_store_bytes") + " + " + from.key("build.resources.spill_load_bytes"),
		}, " bytes are spilled to local memory"),
		next: say("shorten the lives of registers, or take smaller tiles"), gain: missing, effort: profile.Medium,
	}}
}

// counters: what the rules of internal/profile say about the counters.
func counters(s *RunStudy) []advice {
	var all []advice
	file := record{s.Profiled + "/profile.json"}
	for i, p := range s.Profiles {
		for j, insight := range p.Insights {
			key := func(name string) string { return fmt.Sprintf("profiles.%d.insights.%d.%s", i, j, name) }
			a := advice{
				cause: say(file.text(p.Shape, "profiles.%d.shape", i), ": ", file.text(insight.Text, "%s", key("text"))), next: cell(missing),
				gain: missing, effort: insight.Effort,
			}
			if insight.Cause != "" { // records before that have one text
				a.cause = say(file.text(p.Shape, "profiles.%d.shape", i), ": ", file.text(insight.Cause, "%s", key("cause")))
			}
			if insight.Next != "" {
				a.next = cell(file.text(insight.Next, "%s", key("next")))
			}
			if len(insight.Knobs) > 0 {
				a.effort = profile.Small
				a.next = append(a.next, say("; knobs: ")...)
				for k, knob := range insight.Knobs {
					a.next = append(a.next, file.code(knob, "%s.%d", key("knobs"), k), Span{Text: " "})
				}
			}
			if insight.Gain != nil {
				a.gain, a.factor = file.figure("%.2f", *insight.Gain, "%s", key("gain_at_most")), *insight.Gain
			}
			if a.effort != profile.Small && a.effort != profile.Large { // older records have none
				a.effort = profile.Medium
			}
			all = append(all, a)
		}
	}
	return all
}

// unprofiled: nobody has counted what limits the kernel.
func unprofiled(s *RunStudy) []advice {
	r := s.Run
	if len(s.Profiles) > 0 || len(r.Performance) == 0 || len(r.Parts) > 0 {
		return nil
	}
	return []advice{{
		cause: say("no profile was taken of this code"),
		next:  say("count what limits it: ", Span{Text: "attune profile " + run.ShellWord(r.Variant) + s.Commands.kernelFlag(r.Kernel), Code: true}), gain: missing, effort: profile.Small,
	}}
}

// throttling: the GPU lowered its clocks while times were taken.
func throttling(s *RunStudy) []advice {
	r, from := s.Run, runRecord(s.Run.ID)
	for i, p := range r.Performance {
		if p.Monitored != nil && p.Monitored.Throttled*10 > p.Monitored.Rounds {
			return []advice{{
				cause: say("the GPU was throttled in ", from.count(p.Monitored.Throttled, "performance.%d.watched.throttled", i), " of ",
					from.count(p.Monitored.Rounds, "performance.%d.watched.rounds", i), " rounds on ", shapeOf(from, p.Shape, p.ShapeName, "performance", i)),
				next: say("measure again on a cooler or less loaded GPU before deciding on small differences"), gain: missing, effort: profile.Small,
			}}
		}
	}
	return nil
}

// slowTail: single samples are far slower than the median.
func slowTail(s *RunStudy) []advice {
	r, from := s.Run, runRecord(s.Run.ID)
	at, factor := -1, 1.1
	for i, p := range r.Performance {
		if p.P50US > 0 && p.P99US/p.P50US > factor {
			at, factor = i, p.P99US/p.P50US
		}
	}
	if at < 0 {
		return nil
	}
	p := r.Performance[at]
	return []advice{{
		cause: say("on ", shapeOf(from, p.Shape, p.ShapeName, "performance", at), " the p99 is ", from.figure("%.2f", p.P99US, "performance.%d.p99_us", at), " us, the p50 ",
			from.figure("%.2f", p.P50US, "performance.%d.p50_us", at), " us"),
		next: say("look for other work on the GPU, or for blocks of unequal length"), gain: missing, effort: profile.Small,
	}}
}

// uncommitted: the sources of the run are not in git.
func uncommitted(s *RunStudy) []advice {
	if !s.Run.Git.Dirty {
		return nil
	}
	return []advice{{
		cause: say("the checkout had uncommitted changes"), next: say("commit, then repeat the run, so that others can build the same code"), gain: missing,
		effort: profile.Small,
	}}
}
