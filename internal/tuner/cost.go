package tuner

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"attune/internal/arch"
	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/lab"
	"attune/internal/measure"
	"attune/internal/problem"
	"attune/internal/profile"
	"attune/internal/run"
	"attune/internal/tune"
)

// The rates of one multiprocessor for the simulated cost. The simulator counts PTX, not machine code,
// and knows no latencies: a cost orders variants of one kernel and is no time.
const (
	issueSlots = 4 // warp instructions per cycle
	// dependentIssue are the cycles between two dependent instructions of a warp. With few warps they
	// bound a kernel, because no other warp fills the gap.
	dependentIssue = 4
	sectorBytes    = 32
	// otherPipes is the share of the cycles on the other pipes that the busiest one does not hide. It is
	// an assumption, without which variants of a kernel that DRAM limits would all cost the same.
	otherPipes = 0.1
)

// simulate computes the cost from the counters of one launch on each shape, and compares it with the
// best so far, which may be nil. Shapes that the check did not run are run and checked here.
func (h *harness) simulate(ctx context.Context, c, best *Candidate) error {
	logs := 0.0
	for _, shape := range h.request.Shapes {
		ref := h.inputs[shape]
		if c.counters[ref.Instance()] == nil {
			found, err := h.pipeline.CheckInstance(ctx, c.build, ref)
			if err != nil {
				return err
			}
			if c.takeCorrectness(found); !c.ok() {
				return nil
			}
		}
		cycles, err := h.cycles(c, ref)
		if err != nil {
			return err
		}
		c.result.Shapes = append(c.result.Shapes, run.TuneShape{Shape: shape.String(), Cost: cycles})
		logs += math.Log(cycles)
	}
	cost := math.Exp(logs / float64(len(h.request.Shapes)))
	if best == nil {
		c.setCost(cost, true)
		return nil
	}
	ratio := *best.result.Cost / cost
	c.result.Against, c.result.Ratio = best.name(), &measure.Speedup{Ratio: ratio, Low: ratio, High: ratio}
	c.setCost(cost, ratio > 1)
	return nil
}

// cycles is the simulated cost of a launch.
func (h *harness) cycles(c *Candidate, ref problem.Reference) (float64, error) {
	facts := h.lab.Device.Facts()
	job, err := ref.Job(c.build, facts)
	if err != nil {
		return 0, err
	}
	return costOf(c.counters[ref.Instance()], needsOf(c.build, job), blocksOf(job), c.result.Arch, facts.Multiprocessors), nil
}

func blocksOf(job device.Job) int { return job.Grid[0] * job.Grid[1] * job.Grid[2] }

// costOf estimates the cycles of a launch: the cycles of one block on its busiest pipe and a share of
// those on the others, times the blocks that share a multiprocessor, times the waves of blocks. A wave
// is not shorter than the chain of dependent instructions of one warp.
func costOf(counters device.Counters, n blockNeeds, blocks int, name string, multiprocessors int) float64 {
	limits, _ := arch.LimitsOf(name)
	multiprocessors = max(1, multiprocessors)
	resident := n.resident(limits)
	waves := (blocks + multiprocessors*resident - 1) / (multiprocessors * resident)
	resident = min(resident, (blocks+multiprocessors-1)/multiprocessors)
	rates, _ := arch.RatesOf(name)
	half, narrow := rates.Peak()
	v := profile.ValuesOf(counters)
	narrowFLOPs := counters["sm__ops_path_tensor_src_fp8.sum"] + counters["sm__ops_path_tensor_src_int8.sum"]
	pipes := []float64{
		v["ptx_instructions"] / issueSlots,
		v["shared_wavefronts"],
		(v["global_sectors"]*sectorBytes + v["bulk_load_bytes"] + v["bulk_store_bytes"]) / arch.ChipOfArch(name).DRAMBytes(),
		(v[profile.TensorFLOPs]-narrowFLOPs)/half + narrowFLOPs/max(half, narrow),
	}
	busiest, sum := slices.Max(pipes), 0.0
	for _, cycles := range pipes {
		sum += cycles
	}
	block := (busiest + otherPipes*(sum-busiest)) / float64(blocks)
	chain := dependentIssue * v["ptx_instructions"] / float64(blocks*max(1, n.warps))
	return float64(waves) * max(float64(resident)*block, chain)
}

// explainLimit limits the simulation of a new best on a machine with a GPU: its advice is not worth
// more.
const explainLimit = 4 * time.Second

// explain looks for what limits a new best by the counters of the simulator on the smallest shape,
// and suggests the knobs that the explanation names to the strategy.
func (s *search) explain(ctx context.Context, c *Candidate) {
	values, err := c.profile(ctx, s.harness.inputs[s.request.Small[0]])
	if err != nil {
		return // the advice is optional: the PTX may be unsupported, or too slow to simulate
	}
	s.insights = lab.Insights(s.harness.lab.Problem, c.Variant, values)
	c.suggest = []int{}
	for _, insight := range s.insights {
		for _, name := range insight.Knobs {
			knob := slices.IndexFunc(s.space.Knobs, func(k tune.Knob) bool { return k.Name == name && len(k.Values) > 1 })
			if knob >= 0 && !slices.Contains(c.suggest, knob) {
				c.suggest = append(c.suggest, knob)
				c.result.Suggested = append(c.result.Suggested, name)
			}
		}
	}
}

// profile has the counters of a launch on the simulator, and what follows from the launch.
func (c *Candidate) profile(ctx context.Context, ref problem.Reference) (profile.Values, error) {
	b := c.build
	b.Code = b.Image.PTX
	simulator := simdevice.Open(simdevice.Options{Limit: explainLimit})
	job, err := ref.Job(b, simulator.Facts())
	if err != nil {
		return nil, err
	}
	counters := c.counters[ref.Instance()]
	if counters == nil {
		outcome, err := simulator.Run(ctx, job)
		if err != nil {
			return nil, fmt.Errorf("profile %s: %w", c.result.Variant, err)
		}
		counters = outcome.Counters
	}
	v := profile.ValuesOf(counters)
	limits, _ := arch.LimitsOf(c.result.Arch)
	needs := needsOf(b, job)
	v[profile.Registers] = float64(needs.registers)
	v[profile.Occupancy] = 100 * float64(needs.resident(limits)*needs.warps) / float64(limits.Warps)
	return v, nil
}
