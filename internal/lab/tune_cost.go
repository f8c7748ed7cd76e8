package lab

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
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
	// copyBytes are the bytes from DRAM per cycle and multiprocessor: the measured copy of an H200,
	// 4.22 TB/s, over 132 multiprocessors at 1.98 GHz. It stands for every chip.
	copyBytes = 4.22e12 / 132 / 1.98e9
)

// simulate computes the cost from the counters of one launch on each shape. Shapes that the check
// did not run are run and checked here.
func (c *trial) simulate(ctx context.Context) error {
	logs := 0.0
	for _, shape := range c.request.Shapes {
		ref := c.inputs[shape]
		i := ref.Instance()
		if c.counters[i] == nil {
			if err := c.checkInstance(ctx, i, ref, nil); err != nil || !c.e.OK() {
				return err
			}
		}
		cycles, err := c.cycles(ref, c.counters[i])
		if err != nil {
			return err
		}
		c.e.Shapes = append(c.e.Shapes, run.TuneShape{Shape: shape.String(), Cost: cycles})
		logs += math.Log(cycles)
	}
	cost := math.Exp(logs / float64(len(c.request.Shapes)))
	if c.best == nil {
		c.setCost(cost, true)
		return nil
	}
	ratio := *c.best.Cost / cost
	c.e.Against, c.e.Ratio = c.best.Name(), &measure.Speedup{Ratio: ratio, Low: ratio, High: ratio}
	c.setCost(cost, ratio > 1)
	return nil
}

// cycles is the simulated cost of a launch.
func (c *trial) cycles(ref problem.Reference, counters device.Counters) (float64, error) {
	job, err := ref.Job(c.build, c.Device.facts)
	if err != nil {
		return 0, err
	}
	return costOf(counters, needsOf(c.build, job), blocksOf(job), c.e.Arch, c.Device.facts.Multiprocessors), nil
}

func blocksOf(job device.Job) int { return job.Grid[0] * job.Grid[1] * job.Grid[2] }

// costOf estimates the cycles of a launch: the cycles of one block on its busiest pipe and a share of
// those on the others, times the blocks that share a multiprocessor, times the waves of blocks. A wave
// is not shorter than the chain of dependent instructions of one warp.
func costOf(counters device.Counters, n blockNeeds, blocks int, arch string, multiprocessors int) float64 {
	limits, _ := chipOf(arch)
	multiprocessors = max(1, multiprocessors)
	resident := n.resident(limits)
	waves := (blocks + multiprocessors*resident - 1) / (multiprocessors * resident)
	resident = min(resident, (blocks+multiprocessors-1)/multiprocessors)
	half, narrow := profile.TensorRates(arch)
	v := profile.ValuesOf(counters)
	narrowFLOPs := counters["sm__ops_path_tensor_src_fp8.sum"] + counters["sm__ops_path_tensor_src_int8.sum"]
	pipes := []float64{
		v["ptx_instructions"] / issueSlots,
		v["shared_wavefronts"],
		(v["global_sectors"]*sectorBytes + v["bulk_load_bytes"] + v["bulk_store_bytes"]) / copyBytes,
		(v[profile.TensorFLOPs]-narrowFLOPs)/half + narrowFLOPs/narrow,
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
func (c *trial) explain(ctx context.Context) {
	values, err := c.profileValues(ctx, c.inputs[c.request.Small[0]])
	if err != nil {
		return // the advice is optional: the PTX may be unsupported, or too slow to simulate
	}
	c.tuning.insights = c.insightsOf(values)
	c.suggest = []int{}
	for _, insight := range c.tuning.insights {
		for _, name := range insight.Knobs {
			knob := slices.IndexFunc(c.space.Knobs, func(k tune.Knob) bool { return k.Name == name && len(k.Values) > 1 })
			if knob >= 0 && !slices.Contains(c.suggest, knob) {
				c.suggest = append(c.suggest, knob)
				c.e.Suggested = append(c.e.Suggested, name)
			}
		}
	}
}

// profileValues are the counters of a launch on the simulator, and what follows from the launch.
func (c *trial) profileValues(ctx context.Context, ref problem.Reference) (profile.Values, error) {
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
			return nil, fmt.Errorf("profile %s: %w", c.e.Variant, err)
		}
		counters = outcome.Counters
	}
	v := profile.ValuesOf(counters)
	limits, _ := chipOf(c.e.Arch)
	needs := needsOf(b, job)
	v[profile.Registers] = float64(needs.registers)
	v[profile.Occupancy] = 100 * float64(needs.resident(limits)*needs.warps) / float64(limits.warps)
	return v, nil
}

// insightsOf explain figures, with the knobs that the variant has.
func (c *trial) insightsOf(v profile.Values) []profile.Insight {
	all := profile.Explain(v, c.problem().Hints())
	for i := range all {
		all[i].Knobs = knobsOf(c.variant, all[i].Knobs)
	}
	return all
}
