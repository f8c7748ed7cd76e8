package document

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
		}
	}
	return all
}
