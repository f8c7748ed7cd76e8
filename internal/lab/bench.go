package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"attune/internal/device"
	"attune/internal/device/isolate"
	"attune/internal/ledger"
	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/peer"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// BenchRequest is which variants to time beside which peers, and how.
type BenchRequest struct {
	Variants   []spec.Variant
	Selections []*spec.Selection // on each shape the variant that they choose for it
	Shapes     []tensor.Shape
	Seed       uint64
	Rounds     int           // samples of each
	Launches   int           // in a graph, at most; 0 is as usual
	Rest       time.Duration // of the GPU before each sample
	Arch       string
	// MostWork is how many multiply-adds a right answer may take before it is had of a sample of the query rows; usually oracle.MostWork.
	MostWork float64
	Command  string // that asks for the same, for the record

	Peers      []peer.Peer
	StartPeers func(context.Context) (Peers, error)
}

// Peers is the process that runs the peers: a peer.Helper.
type Peers interface {
	Facts() peer.Facts
	Missing(p peer.Peer) error
	Prepare(ctx context.Context, p peer.Peer, in *tensor.Inputs, g peer.Graph) error
	Answer(ctx context.Context, p peer.Peer) ([]float32, error)
	Sample(ctx context.Context, p peer.Peer, samples int, rest time.Duration) ([]float64, error)
	Forget(ctx context.Context) error
	Lost() bool
	Close() error
}

const (
	// mostTurns is in how many turns the samples of a shape are taken. It is even, so that everyone comes first as often as last.
	mostTurns = 12
	// peerShare is how much a peer's own error may be, as a share of what FP8 inputs cost: as much as a variant's with E4M3 products.
	peerShare = 1
)

// Bench times variants and peers on each shape, in turns, and records the result. What gives a wrong answer is not timed. A peer that fails is left out,
// with the reason; the variants' figures come all the same. Where it is interrupted or fails with some shapes finished, these are recorded as well, and
// given beside the error. A bench that the ledger would not take has no id.
func (l *Lab) Bench(ctx context.Context, r BenchRequest) (*run.Bench, error) {
	request := Request{Variants: r.Variants, Selections: r.Selections, Shapes: r.Shapes, Seeds: []uint64{r.Seed}, Arch: r.Arch}
	if err := request.Check(); err != nil {
		return nil, err
	}
	variants := slices.Clone(r.Variants)
	for _, s := range r.Selections {
		parts, _ := request.parts(s) // the request has been checked
		for _, part := range parts {
			variants = append(variants, part.Variants...)
		}
	}
	builds := l.startBuilds(ctx, request, variants)
	defer builds.stop()
	turns := min(r.Rounds, mostTurns)
	b := &bench{lab: l, request: r, turns: turns, references: newSampledReferences(r.MostWork), banned: map[string]bool{}}
	b.images, b.result = map[string]*toolchain.Image{}, &run.Bench{
		SchemaVersion: run.BenchSchemaVersion, Time: time.Now().UTC().Truncate(time.Millisecond), Kernel: l.Kernel.Name, Command: r.Command,
		Git: l.Git, GitSHA: l.Git.SHA, Attune: l.Version,
		Facts: l.Facts, Seed: r.Seed, Rounds: r.Rounds, Turns: turns, Timing: r.timing(), Ceilings: run.CeilingsOf(l.Facts.Name),
		Answers: []run.BenchAnswer{}, Rows: []run.BenchRow{}, Best: []run.BestRow{}, LeftOut: []run.LeftOut{},
	}
	defer b.close()
	for _, v := range variants {
		l.tell(Event{Variant: v.String(), Doing: "building"})
		image, err := builds.wait(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v, err)
		}
		if b.images[v.String()] == nil {
			b.result.Builds = append(b.result.Builds, image.Record)
		}
		b.images[v.String()] = image
	}
	for _, shape := range r.Shapes {
		b.result.Asked = append(b.result.Asked, shape.String())
	}
	if err := b.open(ctx); err != nil {
		return nil, err
	}
	if err := b.start(ctx); err != nil {
		return nil, err
	}
	err := b.shapes(ctx)
	if len(b.result.Answers) == 0 {
		return nil, err
	}
	if err != nil {
		b.result.Ended = endedBy(ctx, err)
	}
	// What was measured is kept also by whoever was interrupted.
	return b.result, errors.Join(err, l.recordBench(context.WithoutCancel(ctx), b.result))
}

// shapes does one shape after another, until one fails.
func (b *bench) shapes(ctx context.Context) error {
	for i, shape := range b.request.Shapes {
		if err := b.shape(ctx, i, shape); err != nil {
			return err
		}
	}
	return nil
}

// endedBy says why a bench has not all of its shapes.
func endedBy(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return "interrupted"
	}
	return err.Error()
}

// recordBench gives a bench its id and writes it into the ledger. One that is not in the ledger has no id.
func (l *Lab) recordBench(ctx context.Context, b *run.Bench) error {
	b.ID = ledger.NewID(b.Time, "bench")
	files, err := l.benchDocuments(b)
	if err == nil {
		err = l.Ledger.RecordBench(ctx, files)
	}
	if err != nil {
		b.ID = ""
	}
	return err
}

// benchTiming says in the result how times were taken.
const benchTiming = "device time by CUDA graph replay, each after one that is not looked at, inputs warm in L2. " +
	"Variants run in a process of attune's and peers in a Python process; both keep their GPU context, and only one runs at a time. They take turns, each turn after a warm-up, and the order is turned round from turn to turn (ABBA)"

// timing adds to that what is not as usual.
func (r BenchRequest) timing() string {
	text := benchTiming
	if graphs := run.GraphsText(r.Launches); graphs != "" {
		text += "; " + graphs
	}
	if r.Rest > 0 {
		text += fmt.Sprintf("; the GPU rests for %s before each sample, so that its power holds it back less than under a steady load", r.Rest)
	}
	return text
}

// plan takes so many samples.
func (r BenchRequest) plan(samples int) device.Plan {
	return device.Plan{Samples: samples, Launches: r.Launches, Rest: r.Rest}
}

// bench is a request being done.
type bench struct {
	lab        *Lab
	request    BenchRequest
	turns      int
	result     *run.Bench
	references *references
	images     map[string]*toolchain.Image // by variant
	device     device.Device
	peers      Peers           // nil where there are none, or none are left
	banned     map[string]bool // peers that are missing or brought their process down
}

// ours are the variants that take a shape, by the names of their rows.
func (b *bench) ours(shape tensor.Shape) (variants []spec.Variant, rows []run.BenchRow) {
	for _, v := range b.request.Variants {
		variants, rows = append(variants, v), append(rows, run.BenchRow{Name: v.String()})
	}
	for _, s := range b.request.Selections {
		c, _ := s.Choose(shape) // the request has been checked
		variants, rows = append(variants, c.Variant), append(rows, run.BenchRow{Name: s.Name, Taken: c.Variant.String()})
	}
	for i := range rows {
		rows[i].Shape, rows[i].DType = shape.String(), "e4m3"
	}
	return variants, rows
}

// contender is an implementation on one shape.
type contender struct {
	row  run.BenchRow
	job  *device.Job // of a variant
	peer peer.Peer   // where there is no job
}

// graph is what a sample of a peer replays.
func (c *contender) graph() peer.Graph {
	return peer.Graph{Launches: c.row.Launches, Copies: c.row.Copies}
}

func (b *bench) open(ctx context.Context) (err error) {
	b.device, err = b.lab.Open(ctx)
	return err
}

func (b *bench) close() {
	if b.device != nil {
		b.device.Close()
	}
	b.closePeers()
}

func (b *bench) closePeers() {
	if b.peers != nil {
		b.peers.Close()
		b.peers = nil
	}
}

// start starts the peers' process. Where that fails, all of them are left out.
func (b *bench) start(ctx context.Context) error {
	wanted := b.wanted()
	if names(wanted) == "" {
		return nil
	}
	b.lab.tell(Event{Variant: names(wanted), Doing: "starting"})
	peers, err := b.request.StartPeers(ctx)
	if err == nil {
		if err = sameDevice(peers.Facts(), b.device.Facts()); err != nil {
			peers.Close()
		}
	}
	if err != nil {
		return b.leaveOut(ctx, names(wanted), "", err)
	}
	b.peers = peers
	facts := peers.Facts()
	b.result.Peers = &facts
	return b.leaveOutMissing(ctx, wanted)
}

// leaveOutMissing leaves out, on all shapes, the peers that the process says it has not.
func (b *bench) leaveOutMissing(ctx context.Context, wanted []peer.Peer) error {
	for _, p := range wanted {
		err := b.peers.Missing(p)
		if err == nil {
			continue
		}
		b.banned[p.String()] = true
		if p.Welcome {
			continue
		}
		if err := b.leaveOut(ctx, p.String(), "", err); err != nil {
			return err
		}
	}
	return nil
}

// sameDevice refuses peers that would run on another card.
func sameDevice(theirs peer.Facts, ours device.Facts) error {
	bare := func(uuid string) string { return strings.ToLower(strings.TrimPrefix(uuid, "GPU-")) }
	if theirs.GPU == ours.Name && (theirs.UUID == "" || ours.UUID == "" || bare(theirs.UUID) == bare(ours.UUID)) {
		return nil
	}
	return &peer.Error{
		Why: fmt.Sprintf("they would run on %s %s, and the variants run on %s %s", theirs.GPU, theirs.UUID, ours.Name, ours.UUID),
		Do:  "let CUDA_VISIBLE_DEVICES name one GPU",
	}
}

// wanted are the peers that are not banned.
func (b *bench) wanted() []peer.Peer {
	return slices.DeleteFunc(slices.Clone(b.request.Peers), func(p peer.Peer) bool { return b.banned[p.String()] })
}

func names(peers []peer.Peer) string {
	var all []string
	for _, p := range peers {
		if !p.Welcome {
			all = append(all, p.String())
		}
	}
	return strings.Join(all, ", ")
}

// leaveOut writes down why something was not timed. Only the caller's own end is passed on.
func (b *bench) leaveOut(ctx context.Context, name, shape string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	left := run.LeftOut{Name: name, Shape: shape, Why: err.Error()}
	var reason *peer.Error
	if errors.As(err, &reason) {
		left.Why, left.Do = reason.Why, reason.Do
	}
	b.result.LeftOut = append(b.result.LeftOut, left)
	return nil
}

// shape does one shape: answers, then times.
func (b *bench) shape(ctx context.Context, number int, shape tensor.Shape) error {
	doing := func(what string) {
		b.lab.tell(Event{Variant: shape.String(), Doing: what, Done: number, Total: len(b.request.Shapes)})
	}
	doing("the right answer")
	asked := problem{shape: shape, seed: b.request.Seed, inputs: tensor.Normal}
	b.references.forget(asked)
	ref, err := b.references.get(ctx, asked)
	if err != nil {
		return err
	}
	doing("correctness")
	ours, err := b.answers(ctx, ref)
	if err != nil {
		return err
	}
	graph, err := b.graph(ctx, ours)
	if err != nil {
		return err
	}
	theirs, err := b.peerAnswers(ctx, ref, graph)
	if err != nil {
		return err
	}
	for turn := range b.turns {
		doing(fmt.Sprintf("turn %d of %d", turn+1, b.turns))
		if theirs, err = b.turn(ctx, turn, ref, ours, theirs); err != nil {
			return err
		}
	}
	b.conclude(shape, slices.Concat(ours, theirs))
	b.result.Answers = append(b.result.Answers, run.BenchAnswer{Shape: shape.String(), Checked: ref.checked()})
	if b.peers != nil {
		if err := b.peers.Forget(ctx); err != nil {
			return b.recover(ctx, "peers", shape.String(), err)
		}
	}
	return nil
}

// answers holds every variant against the oracle. One that takes the device down is wrong, and the next gets a fresh one.
func (b *bench) answers(ctx context.Context, ref *reference) ([]*contender, error) {
	var all []*contender
	variants, rows := b.ours(ref.inputs.Shape)
	for i, v := range variants {
		c := &contender{row: rows[i]}
		all = append(all, c)
		image := b.images[v.String()]
		job := newJob(image, b.device.Facts(), ref.inputs)
		outcome, err := b.device.Run(ctx, job)
		if takesDown(err) && ctx.Err() == nil {
			c.row.Wrong = err.Error()
			b.device.Close()
			if err := b.open(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s on %s: %w", v, ref.inputs.Shape, err)
		}
		off, wrong, err := b.lab.check(ref, v, image, outcome)
		if err != nil {
			return nil, err
		}
		c.judged(off.Errors, wrong)
		c.job = &job
	}
	return all, nil
}

// takesDown says whether an error is the kernel's own, and the device is lost with it.
func takesDown(err error) bool {
	var fault *device.Fault
	var timeout *device.Timeout
	var crash *isolate.Crash
	return errors.As(err, &fault) || errors.As(err, &timeout) || errors.As(err, &crash)
}

func (c *contender) judged(found oracle.Errors, wrong []string) {
	c.row.MaxErr, c.row.MeanErr = &found.MaxErr, &found.MeanErr
	if len(wrong) > 0 {
		c.row.Wrong = wrong[0]
	}
}

// right are the contenders whose answers are.
func right(all []*contender) []*contender {
	return slices.DeleteFunc(slices.Clone(all), func(c *contender) bool { return c.row.Wrong != "" })
}

// graph is what a sample of a peer has: as many launches as one of ours, with as many copies of the inputs.
func (b *bench) graph(ctx context.Context, ours []*contender) (peer.Graph, error) {
	series, err := b.time(ctx, right(ours), 1)
	g := peer.Graph{Copies: 1}
	for _, s := range series {
		g.Launches, g.Copies = max(g.Launches, s.LaunchesPerSample), max(g.Copies, s.Copies)
	}
	if g.Launches == 0 { // none of ours gives a number
		g.Launches = b.request.plan(1).MostLaunches()
	}
	return g, err
}

// time takes samples of variants, which the device takes in turns among themselves.
func (b *bench) time(ctx context.Context, ours []*contender, samples int) ([]device.Series, error) {
	if len(ours) == 0 {
		return nil, nil
	}
	var jobs []device.Job
	for _, c := range ours {
		jobs = append(jobs, *c.job)
	}
	series, err := b.device.Time(ctx, jobs, b.request.plan(samples))
	if err != nil {
		return nil, fmt.Errorf("time %s: %w", ours[0].row.Shape, err)
	}
	return series, nil
}

// peerAnswers prepares every peer and holds it against the oracle.
func (b *bench) peerAnswers(ctx context.Context, ref *reference, g peer.Graph) ([]*contender, error) {
	shape := ref.inputs.Shape.String()
	var all []*contender
	for _, p := range b.wanted() {
		if b.peers == nil {
			break
		}
		if b.banned[p.String()] {
			continue // since this loop began
		}
		c := &contender{peer: p, row: run.BenchRow{Shape: shape, Name: p.String(), Peer: true, DType: p.DType, Launches: g.Launches, Copies: g.Copies}}
		b.lab.tell(Event{Variant: p.String(), Doing: "correctness " + shape})
		if err := b.ask(ctx, c, ref); err != nil {
			var failed error
			if all, failed = b.loseOne(ctx, c, all, ref, err); failed != nil {
				return nil, failed
			}
			continue
		}
		all = append(all, c)
	}
	return all, ctx.Err()
}

// ask prepares one peer and judges its answer.
func (b *bench) ask(ctx context.Context, c *contender, ref *reference) error {
	if err := b.peers.Prepare(ctx, c.peer, ref.inputs, c.graph()); err != nil {
		return err
	}
	answer, err := b.peers.Answer(ctx, c.peer)
	if err != nil {
		return err
	}
	tolerance := b.lab.Kernel.Tolerance
	looked := widened(oracle.Take(ref.answer.Rows, answer, ref.inputs.Shape.HeadDim))
	off, err := oracle.Compare(looked, ref.answer, oracle.Tolerance{Abs: tolerance.Atol, Rel: tolerance.Rtol})
	if err != nil {
		return err
	}
	_, wrong := judge(ref, toolchain.Launch{}, found{Errors: off}, nil, peerShare, tolerance)
	c.judged(off, wrong)
	return nil
}

func widened(values []float32) []float64 {
	wide := make([]float64, len(values))
	for i, x := range values {
		wide[i] = float64(x)
	}
	return wide
}

// recover leaves a peer out. Where its process was lost as well, the peer is not asked again, and the others get a new process.
func (b *bench) recover(ctx context.Context, name, shape string, err error) error {
	if err := b.leaveOut(ctx, name, shape, err); err != nil {
		return err
	}
	if !b.peers.Lost() {
		return nil
	}
	b.banned[name] = true
	b.closePeers()
	return b.start(ctx)
}

// prepareAgain prepares peers for a new process, and gives those that it still has.
func (b *bench) prepareAgain(ctx context.Context, all []*contender, ref *reference) ([]*contender, error) {
	for _, c := range all {
		if b.peers == nil {
			return nil, nil // why, was written down when none could be started
		}
		if err := b.peers.Prepare(ctx, c.peer, ref.inputs, c.graph()); err != nil {
			return b.loseOne(ctx, c, all, ref, err)
		}
	}
	return all, nil
}

// loseOne leaves a peer out and gives the others, prepared anew if its process was lost.
func (b *bench) loseOne(ctx context.Context, c *contender, all []*contender, ref *reference, err error) ([]*contender, error) {
	lost := b.peers.Lost()
	if err := b.recover(ctx, c.row.Name, c.row.Shape, err); err != nil {
		return nil, err
	}
	rest := slices.DeleteFunc(slices.Clone(all), func(other *contender) bool { return other == c })
	if !lost {
		return rest, nil
	}
	return b.prepareAgain(ctx, rest, ref)
}

// turn has everyone take samples once, in the order of even turns or in that of odd ones, and gives the peers that are still there.
func (b *bench) turn(ctx context.Context, turn int, ref *reference, ours, theirs []*contender) ([]*contender, error) {
	samples := b.request.Rounds*(turn+1)/b.turns - b.request.Rounds*turn/b.turns
	order := append([]*contender{nil}, right(theirs)...) // nil is all of ours
	if turn%2 == 1 {
		slices.Reverse(order)
	}
	for _, c := range order {
		if c == nil {
			if err := b.turnOfOurs(ctx, right(ours), samples); err != nil {
				return nil, err
			}
			continue
		}
		if !slices.Contains(theirs, c) {
			continue // it was lost with another's process
		}
		seconds, err := b.peers.Sample(ctx, c.peer, samples, b.request.Rest)
		if err == nil {
			c.row.Seconds = append(c.row.Seconds, seconds)
			continue
		}
		if theirs, err = b.loseOne(ctx, c, theirs, ref, err); err != nil {
			return nil, err
		}
	}
	return theirs, nil
}

func (b *bench) turnOfOurs(ctx context.Context, ours []*contender, samples int) error {
	series, err := b.time(ctx, ours, samples)
	if err != nil {
		return err
	}
	for i, s := range series {
		row := &ours[i].row
		row.Seconds, row.Launches, row.Copies = append(row.Seconds, s.Seconds), s.LaunchesPerSample, s.Copies
	}
	if len(series) > 0 {
		found := run.CircumstancesOf(1, series...)
		if found.Watched != nil {
			found.Watched.SetAside, found.Watched.Kept = 0, "nobody watches the peers, and ours alone would gain"
		}
		b.result.Circumstances = b.result.And(found)
	}
	return nil
}

// conclude writes the figures of one shape.
func (b *bench) conclude(shape tensor.Shape, all []*contender) {
	var best, bestPeer *contender
	for _, c := range right(all) {
		c.sumUp(shape, b.result.Ceilings)
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
}

// sumUp makes figures of the samples. Where the device's ceiling is known, a time below it is not believed.
func (c *contender) sumUp(shape tensor.Shape, ceilings *run.Ceilings) {
	sum := measure.Summarize(slices.Concat(c.row.Seconds...))
	tflops := shape.FLOPs() / sum.P50 / 1e12
	if ceilings != nil && tflops > ceilings.FP8 {
		c.row.Wrong = fmt.Sprintf("its time means %.0f TFLOP/s, and FP8 products alone reach %.0f on this device", tflops, ceilings.FP8)
		return
	}
	p50, p90 := 1e6*sum.P50, 1e6*sum.P90
	c.row.P50US, c.row.P90US, c.row.TFLOPS = &p50, &p90, &tflops
	if ceilings != nil {
		c.row.Shares = ceilings.Shares(shape.FLOPs(), c.leastBytes(shape), sum.P50)
	}
}

// leastBytes is what must be moved at least: inputs in the contender's format, and an output of two bytes a number.
func (c *contender) leastBytes(shape tensor.Shape) float64 {
	element := 1
	if c.row.Peer {
		element = c.peer.ElementBytes()
	}
	rows, keys := float64(shape.Rows()), float64(shape.KVHeadCount())*float64(shape.SeqK)
	return float64(shape.HeadDim) * (float64(element)*(rows+2*keys) + 2*rows)
}
