package tune

// bayes evaluates the variant with the highest expected improvement among random ones and
// neighbours of the best.
type bayes struct {
	*history
	model *model
}

const (
	bayesStart      = 8  // random variants before the model is used
	bayesRandom     = 90 // random variants of a pool
	bayesNeighbours = 20 // of each of the best three
)

func newBayes(h *history, _ Options) Strategy { return &bayes{h, newModel(h)} }

func (b *bayes) Ask() (Point, bool) {
	p, ok := b.fresh()
	if !ok {
		return nil, false
	}
	elites := best(b.told, 3)
	if len(b.told) < bayesStart || len(elites) == 0 {
		return b.take(p), true
	}
	pool := []Point{p}
	for range bayesRandom {
		if q := b.space.Random(b.random); b.isNew(q) {
			pool = append(pool, q)
		}
	}
	for _, o := range elites {
		for range bayesNeighbours {
			if q, ok := b.move(o.point, b.free, 1+b.random.IntN(2)); ok && b.isNew(q) {
				pool = append(pool, q)
			}
		}
	}
	return b.take(b.model.pick(pool)), true
}

func (b *bayes) Tell(p Point, r Result) { b.tell(p, r) }
