package propose

import (
	"encoding/json"
	"fmt"

	"attune/internal/child"
	"attune/internal/profile"
)

var noInsights = []profile.Insight{}

// candidates are the proposals of an answer that obey the rules. The others are counted, recorded
// and reported to the program.
func (p *Proposer) candidates(a answer) (accepted []Candidate, refused int, err error) {
	limits := p.options.Limits
	for _, kind := range []struct {
		name  string
		texts []json.RawMessage
		limit int
		fill  func(*Candidate, json.RawMessage) error
	}{
		{"variants", a.Variants, limits.Variants, p.variant},
		{"patches", a.Patches, limits.Patches, p.patch},
	} {
		for i, text := range kind.texts {
			p.proposals++
			c := Candidate{Proposal: p.proposals}
			wrong := fmt.Errorf("the answer has %d %s; the first %d are taken", len(kind.texts), kind.name, kind.limit)
			if i < kind.limit {
				wrong = kind.fill(&c, text)
			}
			if err := p.enter(c, wrong); err != nil {
				return nil, 0, err
			}
			if wrong == nil {
				accepted = append(accepted, c)
				continue
			}
			refused++
			if i >= kind.limit {
				break // one refusal for all that are too many
			}
		}
	}
	return accepted, refused, nil
}

// variant fills a candidate from the proposal of a variant.
func (p *Proposer) variant(c *Candidate, text json.RawMessage) error {
	var v variantProposal
	if err := decode(text, &v); err != nil {
		return fmt.Errorf("a variant is %q, %w", child.OneLine(string(text), 60), err)
	}
	c.About = child.OneLine(v.About, 400)
	var err error
	if c.Variant, err = p.subject.variant(v.Variant, v.Knobs); err != nil {
		return err
	}
	c.Parent = p.subject.Default.String()
	if v.Patch == 0 {
		return nil
	}
	known, ok := p.patches.known[v.Patch]
	if !ok {
		return fmt.Errorf("there is no patch %d; patches have the numbers that their results have", v.Patch)
	}
	c.Patch, c.Files, c.Diff, c.Parent = v.Patch, known.files, known.diff, fmt.Sprintf("patch %d", v.Patch)
	return nil
}

// patch fills a candidate from the proposal of a patch, and keeps the diff.
func (p *Proposer) patch(c *Candidate, text json.RawMessage) error {
	var proposed patchProposal
	if err := decode(text, &proposed); err != nil {
		return fmt.Errorf("a patch is %q, %w", child.OneLine(string(text), 60), err)
	}
	c.About = child.OneLine(proposed.About, 400)
	if limit := p.options.Limits.PatchBytes; len(proposed.Diff) > limit {
		return fmt.Errorf("the diff has %d bytes; at most %d are accepted", len(proposed.Diff), limit)
	}
	var err error
	if c.Variant, err = p.subject.variant(proposed.Variant, proposed.Knobs); err != nil {
		return err
	}
	c.Parent = c.Variant.String()
	if proposed.Parent != 0 {
		if _, ok := p.patches.known[proposed.Parent]; !ok {
			return fmt.Errorf("the parent is patch %d, which does not exist", proposed.Parent)
		}
		c.Parent = fmt.Sprintf("patch %d", proposed.Parent)
	}
	if c.Files, c.Diff, err = p.subject.patched([]byte(proposed.Diff)); err != nil {
		return err
	}
	c.Patch, err = p.patches.add(c.Diff, c.Files)
	return err
}

// enter records a candidate, or the reason against it, which the program gets too.
func (p *Proposer) enter(c Candidate, refusal error) error {
	e := event{Message: "proposal", Round: p.round, Proposal: c.Proposal, Patch: c.Patch, Parent: c.Parent, About: c.About}
	if c.Variant.Stage() != nil {
		e.Variant = c.Variant.String()
	}
	if refusal == nil {
		return p.record.write(e)
	}
	e.Message, e.Stage, e.Reason, e.Patch = "refused", refusedStage, child.OneLine(refusal.Error(), 400), 0
	p.last = append(p.last, Result{Proposal: c.Proposal, Variant: e.Variant, Stage: e.Stage, Reason: e.Reason})
	p.note("proposal %d of the proposer is refused: %s", c.Proposal, e.Reason)
	return p.record.write(e)
}
