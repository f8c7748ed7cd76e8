package document

import "slices"

// Figures are the plots of a document, in their order, for a page that shows them without its text.
func (d *Document) Figures() []Figure {
	var all []Figure
	for _, s := range d.Sections {
		all = append(all, figuresOf(s.Blocks)...)
	}
	return all
}

func figuresOf(blocks []Block) (all []Figure) {
	for _, b := range blocks {
		switch b := b.(type) {
		case Figure:
			all = append(all, b)
		case Details:
			all = append(all, figuresOf(b.Blocks)...)
		case Only:
			all = append(all, figuresOf(b.Blocks)...)
		}
	}
	return all
}

// WithoutFigures is the document without its plots.
func (d *Document) WithoutFigures() *Document {
	plain := *d
	plain.Sections = slices.Clone(d.Sections)
	for i := range plain.Sections {
		plain.Sections[i].Blocks = blocksWithoutFigures(plain.Sections[i].Blocks)
	}
	return dropEmpty(&plain)
}

func blocksWithoutFigures(blocks []Block) []Block {
	var kept []Block
	for _, b := range blocks {
		switch b := b.(type) {
		case Figure:
		case Details:
			kept = append(kept, Details{b.Summary, blocksWithoutFigures(b.Blocks)})
		case Only:
			kept = append(kept, Only{b.Depth, blocksWithoutFigures(b.Blocks)})
		default:
			kept = append(kept, b)
		}
	}
	return kept
}
