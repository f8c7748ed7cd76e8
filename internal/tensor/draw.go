package tensor

import (
	"runtime"
	"sync/atomic"

	"attune/internal/crash"
	"attune/internal/fp8"
)

// Options select how inputs are drawn and quantised. The zero value is Normal with one descale
// factor per head.
type Options struct {
	Scale        fp8.Scale
	Distribution Distribution
}

// Tensor is one input of a kernel: [batch, head, row, dim].
type Tensor struct {
	Codes    []byte    // E4M3
	Descale  []float32 // one per head of every batch; an element is its code's value times this
	Original []float32 // the values before quantisation
}

// Inputs are the queries, keys and values of one problem.
type Inputs struct {
	Shape   Shape
	Seed    uint64
	Options Options
	Q, K, V Tensor

	ScaleFactor float64 // the softmax scale in units of the usual one; 0 means 1
}

// Draw generates the inputs of a shape, a seed and options. They are the same bits on every
// machine.
func Draw(shape Shape, seed uint64, options Options) *Inputs {
	in := &Inputs{Shape: shape, Seed: seed, Options: options}
	in.Q = newTensor(shape.HeadCount(), shape.SeqQ*shape.HeadDim)
	in.K = newTensor(shape.KVHeadCount(), shape.SeqK*shape.HeadDim)
	in.V = newTensor(shape.KVHeadCount(), shape.SeqK*shape.HeadDim)
	// The heads of all three tensors form one pool of tasks, so that shapes with few long heads
	// also use all cores.
	tensors := [3]*Tensor{queryStream: &in.Q, keyStream: &in.K, valueStream: &in.V}
	q, kv := shape.HeadCount(), shape.KVHeadCount()
	parallel(q+2*kv, func(i int) {
		index, head := queryStream, i
		if i >= q {
			index, head = keyStream+(i-q)/kv, (i-q)%kv
		}
		values := tensors[index].original(head)
		fill(values, Stream(seed, index, head), options.Distribution)
		adapt(values, shape.HeadDim, index, Stream(seed, biasStream, head), options.Distribution)
		if options.Distribution == Dominant && index == queryStream {
			keys := make([]float32, shape.SeqK*shape.HeadDim)
			fill(keys, Stream(seed, keyStream, head/shape.Group()), options.Distribution)
			fillDominant(values, keys, shape, Stream(seed, positionStream, head))
		}
		if options.Scale == fp8.PerHead { // now, while the head is in the cache
			tensors[index].quantize(head, fp8.Descale(values))
		}
	})
	if options.Scale != fp8.PerHead {
		for _, t := range tensors {
			t.quantizeAll(options.Scale)
		}
	}
	return in
}

func newTensor(heads, length int) Tensor {
	return Tensor{Codes: make([]byte, heads*length), Descale: make([]float32, heads), Original: make([]float32, heads*length)}
}

// Quantize makes a tensor from the values of several heads of equal length. The tensor keeps values
// as its Original.
func Quantize(values []float32, heads int, scale fp8.Scale) Tensor {
	t := Tensor{Codes: make([]byte, len(values)), Descale: make([]float32, heads), Original: values}
	t.quantizeAll(scale)
	return t
}

func (t *Tensor) quantizeAll(scale fp8.Scale) {
	descale := func(head int) float32 { return fp8.Descale(t.original(head)) }
	if scale != fp8.PerHead {
		shared := fp8.Descale(t.Original)
		descale = func(int) float32 { return shared }
	}
	parallel(len(t.Descale), func(head int) { t.quantize(head, descale(head)) })
}

// original returns the original values of one head.
func (t *Tensor) original(head int) []float32 {
	length := len(t.Original) / len(t.Descale)
	return t.Original[head*length:][:length]
}

// quantize sets the codes and the descale factor of one head.
func (t *Tensor) quantize(head int, descale float32) {
	values := t.original(head)
	t.Descale[head] = descale
	fp8.Quantize(t.Codes[head*len(values):], values, descale)
}

// WithMask returns the same inputs with or without the causal mask. It shares the memory of in.
func (in *Inputs) WithMask(causal bool) *Inputs {
	masked := *in
	masked.Shape.Causal = causal
	return &masked
}

// Dequantized returns the dequantised values of all codes, rounded to float32.
func (t *Tensor) Dequantized() []float32 {
	values := make([]float32, len(t.Codes))
	length := len(t.Codes) / len(t.Descale)
	parallel(len(t.Descale), func(head int) {
		into := values[head*length:][:length]
		for i, code := range t.Codes[head*length:][:length] {
			into[i] = fp8.E4M3(code).Float32() * t.Descale[head]
		}
	})
	return values
}

// Dequantize fills values with dequantised elements of one head, beginning at element first.
func (t *Tensor) Dequantize(values []float64, head, first int) {
	length := len(t.Codes) / len(t.Descale)
	fp8.Dequantize(values, t.Codes[head*length:][first:length][:len(values)], t.Descale[head])
}

// parallel calls do for every i below n, on all cores.
func parallel(n int, do func(i int)) {
	var next atomic.Int64
	var workers crash.Group
	for range min(n, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	workers.Wait()
}
