package cases

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"attune/internal/device"
)

// Job is the case as a job for any device. The kernel may change every buffer; those that nobody has written are filled with one byte.
func (c *Case) Job(fill byte) (device.Job, error) {
	image, err := os.ReadFile(filepath.Join(c.dir, c.PTX))
	if err != nil {
		return device.Job{}, fmt.Errorf("%s: %w", c.Name, err)
	}
	job := device.Job{Image: image, Entry: c.Entry, Grid: c.Grid, Block: c.Block, DynamicSharedBytes: c.Shared}
	if c.Cluster != (extents{1, 1, 1}) { // of one block are none, and older chips know of no others
		job.Cluster = c.Cluster
	}
	for i, a := range c.Args {
		arg, err := a.arg(fill)
		if err != nil {
			return device.Job{}, fmt.Errorf("%s: argument %d: %w", c.Name, i, err)
		}
		job.Args = append(job.Args, arg)
	}
	return job, nil
}

// arg is the argument of a job.
func (a *Argument) arg(fill byte) (device.Arg, error) {
	switch {
	case a.Hex != nil:
		data, err := hex.DecodeString(*a.Hex)
		return device.Arg{InOut: data}, err
	case a.Bytes != nil:
		return device.Arg{InOut: bytes.Repeat([]byte{fill}, *a.Bytes)}, nil
	case a.TensorMap != nil:
		return device.Arg{TensorMap: a.TensorMap}, nil
	}
	return device.Arg{Scalar: a.scalar()}, nil
}

// scalar is the bytes of an argument that is a number.
func (a *Argument) scalar() []byte {
	switch {
	case a.U64 != nil:
		return binary.LittleEndian.AppendUint64(nil, *a.U64)
	case a.F32 != nil:
		return binary.LittleEndian.AppendUint32(nil, math.Float32bits(*a.F32))
	}
	return binary.LittleEndian.AppendUint32(nil, *a.U32)
}

// Mismatches holds the outputs of the case's job against what the case expects.
func (c *Case) Mismatches(outputs [][]byte) ([]string, error) {
	list, err := c.mismatches(func(index int, data []byte) error {
		held, err := c.output(outputs, index)
		if err != nil {
			return err
		}
		if len(data) > len(held) {
			return fmt.Errorf("%d bytes are expected of a buffer of %d", len(data), len(held))
		}
		copy(data, held)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	return list, nil
}

// Expected is the outputs that the case speaks of, by the number of the argument: as many bytes of each as it gives, or the whole buffer where it
// gives none yet.
func (c *Case) Expected(outputs [][]byte) (map[string][]byte, error) {
	parts := map[string][]byte{}
	for name, expected := range c.Expect.Args {
		index, err := strconv.Atoi(name)
		var held []byte
		if err == nil {
			held, err = c.output(outputs, index)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: expect.args: argument %s: %w", c.Name, name, err)
		}
		if n := len(expected.Hex) / 2; n > 0 {
			held = held[:min(n, len(held))]
		}
		parts[name] = held
	}
	return parts, nil
}

// output is what the buffer of an argument held.
func (c *Case) output(outputs [][]byte, index int) ([]byte, error) {
	n := 0
	for i, a := range c.Args {
		if a.Hex == nil && a.Bytes == nil {
			continue
		}
		if i == index && n < len(outputs) {
			return outputs[n], nil
		}
		n++
	}
	return nil, errors.New("it is no buffer")
}
