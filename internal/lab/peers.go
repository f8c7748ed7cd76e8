package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"attune/internal/device"
	"attune/internal/peer"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/spec"
)

// Peers is the process that runs the peers of a bench: a peer.Helper.
type Peers interface {
	Facts() peer.Facts
	Missing(p peer.Peer) error
	Prepare(ctx context.Context, p peer.Peer, data problem.PeerData, g peer.Graph) error
	Output(ctx context.Context, p peer.Peer) (map[string][]float64, error)
	Sample(ctx context.Context, p peer.Peer, samples int, pace peer.Pace) ([]float64, error)
	Energy(ctx context.Context, p peer.Peer) (joules float64, err error)
	Release(ctx context.Context) error
	Lost() bool
	Close() error
}

// startPeers starts the process of the peers. If that fails, all of them are skipped.
func (b *bench) startPeers(ctx context.Context) error {
	wanted := b.wantedPeers()
	names := peerNames(wanted)
	if names == "" {
		return nil
	}
	ours, err := b.sessions[0].ready(ctx)
	if err != nil {
		return err
	}
	b.lab.progress(Progress{Subject: names, Step: "starting"})
	peers, err := b.request.StartPeers(ctx)
	if err == nil {
		if err = sameGPU(peers.Facts(), ours.Facts()); err != nil {
			peers.Close()
		}
	}
	if err != nil {
		return b.skip(ctx, names, "", err)
	}
	b.peers = peers
	facts := peers.Facts()
	facts.Functions = peer.Sources(b.request.Peers)
	b.result.Peers = &facts
	return b.skipMissing(ctx, wanted)
}

func (b *bench) closePeers() {
	if b.peers != nil {
		b.peers.Close()
		b.peers = nil
	}
}

// forgetPeers frees the peers' inputs of a shape.
func (b *bench) forgetPeers(ctx context.Context, shape spec.Shape) error {
	if b.peers == nil {
		return nil
	}
	if err := b.peers.Release(ctx); err != nil {
		return b.recoverPeers(ctx, "peers", shape.String(), err)
	}
	return nil
}

// skipMissing skips, on all shapes, the peers that the process does not have.
func (b *bench) skipMissing(ctx context.Context, wanted []peer.Peer) error {
	for _, p := range wanted {
		err := b.peers.Missing(p)
		if err == nil {
			continue
		}
		b.excluded[p.String()] = true
		if p.Optional { // it was not requested by name
			continue
		}
		if err := b.skip(ctx, p.String(), "", err); err != nil {
			return err
		}
	}
	return nil
}

// sameGPU refuses peers that would run on another GPU than the variants.
func sameGPU(peers peer.Facts, ours device.Facts) error {
	bare := func(uuid string) string { return strings.ToLower(strings.TrimPrefix(uuid, "GPU-")) }
	if peers.GPU == ours.Name && (peers.UUID == "" || ours.UUID == "" || bare(peers.UUID) == bare(ours.UUID)) {
		return nil
	}
	return &peer.Error{
		Why: fmt.Sprintf("they would run on %s %s, and the variants run on %s %s", peers.GPU, peers.UUID, ours.Name, ours.UUID),
		Do:  "set CUDA_VISIBLE_DEVICES to one GPU",
	}
}

// wantedPeers are the requested peers that are not excluded.
func (b *bench) wantedPeers() []peer.Peer {
	return slices.DeleteFunc(slices.Clone(b.request.Peers), func(p peer.Peer) bool { return b.excluded[p.String()] })
}

// peerNames lists the peers that were requested by name.
func peerNames(peers []peer.Peer) string {
	var all []string
	for _, p := range peers {
		if !p.Optional {
			all = append(all, p.String())
		}
	}
	return strings.Join(all, ", ")
}

// skip records why a peer was not timed. It returns an error only if the bench was interrupted.
func (b *bench) skip(ctx context.Context, name, shape string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	skipped := run.Skipped{Name: name, Shape: shape, Why: err.Error()}
	var reason *peer.Error
	if errors.As(err, &reason) {
		skipped.Why, skipped.Do = reason.Why, reason.Do
	}
	b.result.Skipped = append(b.result.Skipped, skipped)
	return nil
}

// checkPeers prepares every peer and compares its output with the reference.
func (b *bench) checkPeers(ctx context.Context, ref problem.Reference, g peer.Graph) ([]*contender, error) {
	shape := ref.Instance().Shape.String()
	var all []*contender
	for _, p := range b.wantedPeers() {
		if b.peers == nil {
			break
		}
		if b.excluded[p.String()] {
			continue // since this loop began
		}
		c := b.newPeer(p, ref.Instance().Shape, g)
		b.progress(Progress{Subject: p.String(), Step: "correctness " + shape})
		if err := b.checkPeer(ctx, c, ref); err != nil {
			var failed error
			if all, failed = b.dropPeer(ctx, c, all, ref, err); failed != nil {
				return nil, failed
			}
			continue
		}
		all = append(all, c)
	}
	return all, ctx.Err()
}

// newPeer is a peer on a shape. A function computes the problem of the kernel in its number formats,
// and does the work of its first variant.
func (b *bench) newPeer(p peer.Peer, shape spec.Shape, g peer.Graph) *contender {
	c := &contender{peer: p, row: run.BenchRow{
		Shape: shape.String(), Name: p.String(), Peer: true, DType: p.DType, Launches: g.Launches, Copies: g.Copies,
	}}
	if p.Kind == peer.Python {
		c.build.Variant = b.plan.entries[0].on(shape)
		c.row.DType, c.row.ShapeName = b.lab.problem().DType(spec.Variant{}), b.lab.shapeName(shape)
	}
	return c
}

// checkPeer prepares one peer and compares its output with the reference. A wrong function is
// refused: the user's file is wrong, and no library.
func (b *bench) checkPeer(ctx context.Context, c *contender, ref problem.Reference) error {
	if err := b.peers.Prepare(ctx, c.peer, ref.Peer(), c.graph()); err != nil {
		return err
	}
	output, err := b.peers.Output(ctx, c.peer)
	if err != nil {
		return err
	}
	result := checked{}
	if result.result, err = ref.CompareValues(output); err != nil {
		return err
	}
	_, result.wrong = ref.Judge(problem.Build{}, result.result, 1)
	if c.peer.Kind == peer.Python && len(result.wrong) > 0 {
		return &peer.Error{Why: "its result is wrong: " + result.firstWrong()}
	}
	c.setErrors(result.result, result.firstWrong())
	return nil
}

// dropPeer skips a peer and returns the others. If the process was lost with it, the others are
// prepared in a new one.
func (b *bench) dropPeer(ctx context.Context, c *contender, all []*contender, ref problem.Reference, err error) ([]*contender, error) {
	lost := b.peers.Lost()
	if err := b.recoverPeers(ctx, c.row.Name, c.row.Shape, err); err != nil {
		return nil, err
	}
	rest := slices.DeleteFunc(slices.Clone(all), func(other *contender) bool { return other == c })
	if !lost {
		return rest, nil
	}
	for _, c := range rest {
		if b.peers == nil {
			return nil, nil // startPeers has recorded why
		}
		if err := b.peers.Prepare(ctx, c.peer, ref.Peer(), c.graph()); err != nil {
			return b.dropPeer(ctx, c, rest, ref, err)
		}
	}
	return rest, nil
}

// recoverPeers skips a peer. If its process was lost, the peer is excluded from the rest of the
// bench and the others get a new process.
func (b *bench) recoverPeers(ctx context.Context, name, shape string, err error) error {
	if err := b.skip(ctx, name, shape, err); err != nil {
		return err
	}
	if !b.peers.Lost() {
		return nil
	}
	b.excluded[name] = true
	b.closePeers()
	return b.startPeers(ctx)
}
