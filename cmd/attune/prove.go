package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"attune/internal/lab"
	"attune/internal/spec"
	"attune/internal/terminal"
)

// proveOptions are the flags of list for a proof.
type proveOptions struct {
	requested bool
	arch      string
}

func (o proveOptions) check(args []string) error {
	switch {
	case o.requested && !slices.Equal(args, []string{"knobs"}):
		return errors.New("--prove is about knobs; write `attune list knobs --prove`")
	case o.arch != "" && !o.requested:
		return errors.New("--arch goes with --prove; write `attune list knobs --prove --arch " + o.arch + "`")
	}
	return nil
}

func (a *app) prove(ctx context.Context, o proveOptions, kernel *spec.Kernel, folder fs.FS) error {
	w, err := a.newWorkplace(ctx, kernel, folder)
	if err != nil {
		return err
	}
	defer w.close()
	if w.compiler == nil {
		return fmt.Errorf("--prove builds variants that are not shipped: %w", a.noCompiler)
	}
	w.status.Set("building")
	proof, err := w.Prove(ctx, lab.ProofRequest{Arch: o.arch})
	w.status.Clear()
	switch {
	case ctx.Err() != nil && w.last.Total == 0:
		return errors.New("interrupted before the first build was finished")
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted; %d of %d builds were finished, and are in the cache", w.last.Done+1, w.last.Total)
	case err != nil:
		return err
	}
	if a.json {
		err = a.printJSON(struct {
			SchemaVersion int    `json:"schema_version"`
			Kernel        string `json:"kernel"`
			*lab.Proof
		}{1, kernel.Name, proof})
	} else {
		err = printProof(a.stdout, kernel.Name, proof, a.screen())
	}
	if err == nil && proof.Failed() {
		err = gateError{exitSomeFailed}
	}
	return err
}

// printProof writes the effect of each value on each stage, and the totals.
func printProof(w io.Writer, kernel string, p *lab.Proof, s terminal.Screen) error {
	out := &strings.Builder{}
	arch := p.Arch
	if arch == "" {
		arch = "the newest architecture of each stage"
	}
	s.Paragraph(out, "", fmt.Sprintf("knobs of %s, each value as the only change to each stage, for %s", kernel, arch), 2)
	count := map[lab.Fate]int{}
	for _, k := range p.Knobs {
		count[k.Fate]++
		fate := string(k.Fate)
		if k.Fate == lab.Dead {
			fate = "DEAD"
		}
		fmt.Fprintf(out, "  %s: %s\n", k.Knob, fate)
		for _, v := range k.Values {
			value := fmt.Sprint(v.Value)
			for _, part := range []struct {
				what     string
				variants []string
			}{{"alive", v.Alive}, {"equal", v.Equal}, {"not allowed", v.NotAllowed}, {"broken", v.Broken}, {"own", v.Own}} {
				if len(part.variants) > 0 {
					margin := fmt.Sprintf("    %5s  %-11s  ", value, part.what)
					s.Paragraph(out, margin, strings.Join(part.variants, " "), len(margin))
					value = ""
				}
			}
		}
	}
	s.Paragraph(out, "", fmt.Sprintf("%d alive, %d dead, %d untried (one value, constrained by others, or of stages for another architecture)",
		count[lab.Alive], count[lab.Dead], count[lab.Untried]), 2)
	_, err := io.WriteString(w, out.String())
	return err
}
