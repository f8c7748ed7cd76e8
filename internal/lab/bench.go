package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"attune/internal/device"
	"attune/internal/gate"
	"attune/internal/ledger"
	"attune/internal/measure"
	"attune/internal/peer"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/spec"
)

// BenchRequest says which variants to time beside which peers, and how.
type BenchRequest struct {
	Variants   []spec.Variant
	Selections []*spec.Selection // on each shape, the variant that they choose
	Shapes     []spec.Shape
	Seed       uint64
	Rounds     int       // samples of each implementation
	Processes  int       // that time the variants, in rotation; 0 is 1
	Energy     bool      // measure that of a launch too
	Launches   int       // limit of a graph; 0 for the default
	Pace       peer.Pace // of the GPU before each sample
	Arch       string
	MaxWork    float64 // multiply-adds of a complete reference; above it a sample of rows is checked
	SampleSeed *uint64 // of the sampled rows, to repeat a bench; nil for a random one
	Command    string  // that repeats this bench, for the record

	// Random says how the shapes were drawn and what their times are compared with; nil if they were
	// named. The bench adds the results.
	Random *run.Random

	Peers      []peer.Peer
	StartPeers func(context.Context) (Peers, error)
}

// maxBlocks limits the blocks in which the samples of a shape are taken. It is even, so that every
// implementation is first as often as last.
const maxBlocks = 12

// maxRandomBlocks limits the blocks of a random problem, each of which has a warm-up: there are many
// problems, and their number makes up for the noise of one.
const maxRandomBlocks = 4

// blocks is the number of blocks in which the samples of a shape are taken.
func (r BenchRequest) blocks() int {
	if r.Random != nil {
		return min(r.Rounds, maxRandomBlocks)
	}
	return min(r.Rounds, maxBlocks)
}

// Bench times variants and peers on each shape, interleaved, and records the result. An
// implementation with a wrong output is not timed. A peer that fails is skipped with the reason. If
// the bench is interrupted or fails, the finished shapes are recorded and returned beside the
// error. A bench that could not be recorded has no id.
func (l *Lab) Bench(ctx context.Context, r BenchRequest) (*run.Bench, error) {
	request := Request{Problem: l.problem(), Variants: r.Variants, Selections: r.Selections, Shapes: r.Shapes, Seeds: []uint64{r.Seed}, Arch: r.Arch}
	p, err := request.plan(l.Device.facts.Arch)
	if err == nil {
		err = l.checkRandom(r.Random)
	}
	if err != nil {
		return nil, err
	}
	b := &bench{
		lab: l, request: r, plan: p, blocks: r.blocks(),
		refs: l.references(r.MaxWork, r.SampleSeed), excluded: map[string]bool{},
	}
	b.sessions = l.newSessions(min(r.Processes, b.blocks))
	b.simulations = l.startSimulations(ctx, false, r.Shapes)
	b.result = b.newResult()
	defer b.close()
	if b.builds, err = l.buildAll(ctx, r.Arch, p.variants(false)...); err != nil {
		return nil, err
	}
	b.addBuilds()
	for _, built := range b.builds {
		b.simulations.start(built)
	}
	if _, err := b.sessions[0].ready(ctx); err != nil {
		return nil, err
	}
	if err := b.startPeers(ctx); err != nil {
		return nil, err
	}
	err = b.runShapes(ctx)
	if len(b.result.Checked) == 0 {
		return nil, err
	}
	b.result.Problem = l.recordProblem(b.refs)
	b.summarizeRandom()
	switch {
	case err != nil && ctx.Err() != nil:
		b.result.Ended = "interrupted"
	case err != nil:
		b.result.Ended = err.Error()
	}
	// The finished shapes are recorded even if the bench was interrupted.
	ctx, cancel := finishing(ctx)
	defer cancel()
	return b.result, errors.Join(err, l.recordBench(ctx, b.result))
}

// recordBench gives a bench an id and writes it into the ledger. If that fails, the bench has no
// id.
func (l *Lab) recordBench(ctx context.Context, b *run.Bench) error {
	b.ID = ledger.NewID(b.Time, "bench")
	files, err := b.Documents()
	if err == nil {
		err = l.AddDescription(files, b)
	}
	if err == nil {
		err = l.Ledger.RecordBench(ctx, files)
	}
	if err != nil {
		b.ID = ""
	}
	return err
}

// bench is a BenchRequest in progress.
type bench struct {
	lab        *Lab
	request    BenchRequest
	plan       *plan
	blocks     int
	result     *run.Bench
	freshBlock int // block in which launches on new inputs are timed
	refs       problem.References
	builds     map[string]problem.Build // by variant
	sessions   sessions                 // blocks take turns in them

	simulations *simulations
	peers       Peers           // nil if none are running
	excluded    map[string]bool // peers that are missing or ended their process

	random map[string][]run.RandomProblem // the finished problems by variant or selection
	share  float64                        // of the shapes that are finished
}

// progress reports a step, with the share of the work that is finished.
func (b *bench) progress(p Progress) {
	p.Share = b.share
	b.lab.progress(p)
}

func (b *bench) newResult() *run.Bench {
	l, r, seed := b.lab, b.request, b.refs.Secret()
	result := &run.Bench{
		SchemaVersion: run.BenchSchemaVersion, Time: time.Now().UTC().Truncate(time.Millisecond),
		Kernel: l.Kernel.Name, Command: r.Command, Git: l.Git, GitSHA: l.Git.SHA, Attune: l.Version,
		Facts: l.Device.facts, Seed: r.Seed, Rounds: r.Rounds, Blocks: b.blocks, Timing: r.timing(),
		Ceilings:   run.CeilingsOf(l.Device.facts.Name),
		SampleSeed: &seed, NoSim: l.Device.withoutSimulator,
		Checked: []run.CheckedShape{}, Rows: []run.BenchRow{}, Best: []run.BestRow{}, Skipped: []run.Skipped{},
	}
	for _, shape := range r.Shapes {
		result.Requested = append(result.Requested, shape.String())
	}
	return result
}

// addBuilds records every build once, in the order of the plan.
func (b *bench) addBuilds() {
	known := map[string]bool{}
	for _, v := range b.plan.variants(false) {
		if !known[v.String()] {
			b.result.Builds = append(b.result.Builds, b.builds[v.String()].Image.Record)
		}
		known[v.String()] = true
	}
}

func (b *bench) close() {
	b.sessions.close()
	b.simulations.stop()
	b.closePeers()
	b.refs.Close()
}

// benchTiming describes in the result how times were taken.
const benchTiming = "device time by CUDA graph replay, each after a replay that is not counted, inputs warm in L2. " +
	"Variants run in processes of attune's, which take turns, and peers in a Python process; all keep their GPU context, " +
	"and only one runs at a time. Their samples are taken in interleaved blocks, each after a warm-up, in ABBA order"

// timing adds to benchTiming what differs from the default.
func (r BenchRequest) timing() string {
	text := benchTiming
	if graphs := run.GraphsText(r.Launches); graphs != "" {
		text += "; " + graphs
	}
	if r.Pace.Rest > 0 {
		text += fmt.Sprintf("; the GPU rests for %s before each sample, so that its power limit slows it less than "+
			"under a steady load", r.Pace.Rest)
	}
	if r.Pace.Load > 0 {
		text += fmt.Sprintf("; the launches of a sample run for %s before it without a pause, so that clocks are those that the power "+
			"limit allows", r.Pace.Load)
	}
	return text
}

// contender is an implementation on one shape.
type contender struct {
	row   run.BenchRow
	build problem.Build // of ours; without an image for a peer
	peer  peer.Peer     // where there is no image
}

// graph is what one sample of a peer replays.
func (c *contender) graph() peer.Graph {
	return peer.Graph{Launches: c.row.Launches, Copies: c.row.Copies}
}

// setErrors records the errors of an output, and what is wrong with it if anything is.
func (c *contender) setErrors(errs problem.Result, wrong string) {
	c.row.MaxErr, c.row.MeanErr, c.row.Wrong = &errs.MaxErr, &errs.MeanErr, wrong
}

// correct are the contenders with a correct output.
func correct(all []*contender) []*contender {
	return slices.DeleteFunc(slices.Clone(all), func(c *contender) bool { return c.row.Wrong != "" })
}

// variantsOn are our contenders on a shape: every entry of the plan.
func (b *bench) variantsOn(shape spec.Shape) []*contender {
	var all []*contender
	for _, e := range b.plan.entries {
		v := e.on(shape)
		c := &contender{build: b.builds[v.String()]}
		c.row = run.BenchRow{Shape: shape.String(), ShapeName: b.lab.shapeName(shape), Name: e.name, DType: b.lab.problem().DType(v)}
		if e.selection != nil {
			c.row.Variant = v.String()
		}
		all = append(all, c)
	}
	return all
}

// runShapes benches one shape after another until one fails. A random problem that fails is skipped,
// unless it is the first: then the others would fail too.
func (b *bench) runShapes(ctx context.Context) error {
	for i, shape := range b.request.Shapes {
		b.share = float64(i) / float64(len(b.request.Shapes))
		err := b.runShape(ctx, i, shape)
		if err != nil && b.request.Random != nil && len(b.result.Checked) > 0 {
			err = b.skipProblem(ctx, shape, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// runShape checks all outputs on one shape, then takes the times.
func (b *bench) runShape(ctx context.Context, number int, shape spec.Shape) error {
	progress := func(step string) {
		b.progress(Progress{Subject: shape.String(), Step: step, Done: number, Total: len(b.request.Shapes)})
	}
	progress("reference")
	p := b.lab.problem().Plain(shape, b.request.Seed)
	b.refs.KeepOnly(p)
	ref, err := b.refs.Get(ctx, p)
	if err != nil {
		return err
	}
	progress("correctness")
	ours, err := b.checkVariants(ctx, ref)
	if err != nil {
		return err
	}
	graph, err := b.peerGraph(ctx, ref, ours)
	if err != nil {
		return err
	}
	peers, err := b.checkPeers(ctx, ref, graph)
	if err != nil {
		return err
	}
	b.freshBlock = int(secret() % uint64(b.blocks))
	for block := range b.blocks {
		progress(fmt.Sprintf("block %d of %d", block+1, b.blocks))
		if peers, err = b.sampleBlock(ctx, block, ref, ours, peers); err != nil {
			return err
		}
	}
	if err := b.conclude(shape, slices.Concat(ours, peers)); err != nil {
		return err
	}
	b.result.Checked = append(b.result.Checked, run.CheckedShape{Shape: shape.String(), Coverage: ref.Coverage()})
	return b.forgetPeers(ctx, shape)
}

// checkVariants compares the output of every variant with the reference.
func (b *bench) checkVariants(ctx context.Context, ref problem.Reference) ([]*contender, error) {
	shape := ref.Instance().Shape
	second, err := second(ctx, b.refs, b.lab.problem(), ref.Instance(), b.request.Shapes, b.request.Seed)
	if err != nil {
		return nil, err
	}
	all := b.variantsOn(shape)
	for _, c := range all {
		if _, reasons := b.lab.auditBuild(c.build); len(reasons) > 0 {
			c.row.Wrong = reasons[0]
			continue
		}
		result, err := b.lab.check(ctx, b.sessions[0], c.build, ref, second)
		if err != nil {
			return nil, fmt.Errorf("%s on %s: %w", c.build.Variant, shape, err)
		}
		if result.failure != nil {
			c.row.Wrong = result.failure.Error()
			if device.Classify(result.failure) == device.KernelTimeout {
				c.row.Unchecked, c.row.Wrong = true, "not checked: "+c.row.Wrong
			}
			continue
		}
		proof, err := b.proveSimulated(ctx, c.build)
		if err != nil {
			return nil, err
		}
		wrong := result.firstWrong()
		if wrong == "" && proof.Status == gate.NotMeasured {
			c.row.Unchecked, wrong = true, "not checked: "+proof.Reasons[0]
		} else if wrong == "" && proof.Status == gate.Fail {
			wrong = proof.Reasons[0]
		}
		c.setErrors(result.result, wrong)
	}
	return all, nil
}

// proveSimulated waits for what the simulator found in a variant, and keeps it.
func (b *bench) proveSimulated(ctx context.Context, built problem.Build) (gate.Check, error) {
	found, err := b.simulations.result(ctx, built)
	if err != nil || found == nil {
		return gateSimulated(nil), err
	}
	if b.result.Simulated == nil {
		b.result.Simulated = map[string]*run.Simulated{}
	}
	b.result.Simulated[built.Variant.String()] = found
	return gateSimulated(found), nil
}

// peerGraph is what one sample of a peer replays: as many launches and input copies as one of ours.
func (b *bench) peerGraph(ctx context.Context, ref problem.Reference, ours []*contender) (peer.Graph, error) {
	series, err := b.time(ctx, b.sessions[0], ref, correct(ours), b.timingPlan(1))
	g := peer.Graph{Copies: 1}
	for _, s := range series {
		g.Launches, g.Copies = max(g.Launches, s.LaunchesPerSample), max(g.Copies, s.Copies)
	}
	if g.Launches == 0 { // no variant is correct
		g.Launches = b.timingPlan(1).LaunchLimit()
	}
	return g, err
}

func (b *bench) timingPlan(samples int) device.Plan {
	return device.Plan{Samples: samples, Launches: b.request.Launches, Rest: b.request.Pace.Rest, Load: b.request.Pace.Load}
}

// time takes samples of variants, interleaved with each other. A variant whose timed launches are
// wrong is marked so.
func (b *bench) time(ctx context.Context, session *session, ref problem.Reference, ours []*contender, plan device.Plan) ([]device.Series, error) {
	if len(ours) == 0 {
		return nil, nil
	}
	var builds []problem.Build
	for _, c := range ours {
		builds = append(builds, c.build)
	}
	all, err := b.lab.time(ctx, session, ref, plan, builds...)
	if err != nil {
		return nil, fmt.Errorf("time %s: %w", ref.Instance().Shape, err)
	}
	var series []device.Series
	for i, t := range all {
		series = append(series, t.Series)
		if len(t.Wrong) > 0 {
			ours[i].row.Wrong = "timed: " + t.Wrong[0]
		}
	}
	return series, nil
}

// sampleBlock takes one block of samples of every implementation. Odd blocks are in reverse order.
// It returns the peers that are left.
func (b *bench) sampleBlock(ctx context.Context, block int, ref problem.Reference, ours, peers []*contender) ([]*contender, error) {
	samples := b.request.Rounds*(block+1)/b.blocks - b.request.Rounds*block/b.blocks
	order := append([]*contender{nil}, correct(peers)...) // nil stands for all variants
	if block%2 == 1 {
		slices.Reverse(order)
	}
	for _, c := range order {
		if c == nil {
			if err := b.sampleVariants(ctx, block, ref, correct(ours), samples); err != nil {
				return nil, err
			}
			continue
		}
		if !slices.Contains(peers, c) {
			continue // it was lost with the process of another peer
		}
		err := b.samplePeer(ctx, block, c, samples)
		if err == nil {
			continue
		}
		if peers, err = b.dropPeer(ctx, c, peers, ref, err); err != nil {
			return nil, err
		}
	}
	return peers, nil
}

// samplePeer takes one block of samples of a peer, and in the first block its energy.
func (b *bench) samplePeer(ctx context.Context, block int, c *contender, samples int) error {
	seconds, err := b.peers.Sample(ctx, c.peer, samples, b.request.Pace)
	if err != nil {
		return err
	}
	c.row.Seconds, c.row.Processes = append(c.row.Seconds, seconds), 1
	if block == 0 && b.request.Energy {
		c.row.Joules, err = b.peers.Energy(ctx, c.peer)
	}
	return err
}

// sampleVariants takes one block of samples of every variant. In one block, which no kernel can
// predict, launches on new inputs are timed too.
func (b *bench) sampleVariants(ctx context.Context, block int, ref problem.Reference, ours []*contender, samples int) error {
	plan := b.timingPlan(samples)
	plan.Fresh, plan.Energy = block == b.freshBlock, block == 0 && b.request.Energy
	series, err := b.time(ctx, b.sessions[block%len(b.sessions)], ref, ours, plan)
	if err != nil || len(series) == 0 {
		return err
	}
	for i, s := range series {
		row := &ours[i].row
		if row.Wrong != "" {
			row.Seconds = nil
			continue
		}
		row.Seconds, row.Launches, row.Copies = append(row.Seconds, s.Seconds), s.LaunchesPerSample, s.Copies
		row.Processes, row.Joules = len(b.sessions), cmp.Or(row.Joules, s.Joules)
	}
	found := run.ConditionsOf(1, series...)
	if found.Monitored != nil {
		found.Monitored.Excluded = 0
		found.Monitored.Kept = "peers are not monitored, and excluding slow samples of ours alone would favour ours"
	}
	b.result.Conditions = b.result.And(found)
	return nil
}

// conclude writes the figures of one shape.
func (b *bench) conclude(shape spec.Shape, all []*contender) error {
	var best, bestPeer *contender
	for _, c := range correct(all) {
		work, err := b.lab.problem().Work(c.build.Variant, shape, c.row.DType)
		if err != nil {
			return err
		}
		c.summarize(work, b.result.Ceilings)
		if c.row.P50US != nil && b.lab.problem().Name() != spec.Attention && work.Bytes > 0 {
			rate := work.Bytes / *c.row.P50US / 1e3
			c.row.GBPerS = &rate
		}
		if c.row.Wrong != "" {
			continue
		}
		into := &best
		if c.row.Peer {
			into = &bestPeer
		}
		if *into == nil || *c.row.P50US < *(*into).row.P50US {
			*into = c
		}
	}
	for _, c := range all {
		if best != nil && c != best && c.row.Wrong == "" {
			speedup := measure.CompareBlocks(c.row.Seconds, best.row.Seconds)
			c.row.Speedup = &speedup
		}
		b.result.Rows = append(b.result.Rows, c.row)
	}
	if best != nil && bestPeer != nil {
		b.result.Best = append(b.result.Best, run.BestRow{
			Shape: shape.String(), Variant: best.row.Name, Peer: bestPeer.row.Name, Speedup: *bestPeer.row.Speedup,
		})
	}
	return b.compareRandom(shape, all, bestPeer)
}

// summarize derives the figures from the samples. A time that exceeds the device's measured FP8
// rate cannot be true, and marks the row as wrong.
func (c *contender) summarize(work problem.Work, ceilings *run.Ceilings) {
	sum := measure.SummarizeProcesses(c.row.ByProcess())
	tflops := work.FLOPs / sum.P50 / 1e12
	if ceilings != nil && tflops > ceilings.FP8 {
		c.row.Wrong = fmt.Sprintf("its time means %.0f TFLOP/s, and an FP8 GEMM reaches %.0f on this device", tflops, ceilings.FP8)
		return
	}
	p50, p90 := 1e6*sum.P50, 1e6*sum.P90
	c.row.P50US, c.row.P90US = &p50, &p90
	if work.FLOPs > 0 {
		c.row.TFLOPS = &tflops
	}
	if sum.Median != nil {
		low, high := 1e6*sum.Median.Low, 1e6*sum.Median.High
		c.row.P50LowUS, c.row.P50HighUS = &low, &high
	}
	if ceilings != nil && work != (problem.Work{}) {
		c.row.Shares = ceilings.Shares(work.FLOPs, work.Bytes, sum.P50)
	}
}
