package exec

import "errors"

var errLZ4 = errors.New("LZ4 data is not complete")

// unpackLZ4 unpacks a block of LZ4: sequences of literal bytes and of a match, a piece of the output
// that repeats. A token has the lengths of both, and 15 means that more bytes follow.
func unpackLZ4(data []byte, size int) ([]byte, error) {
	out := make([]byte, 0, size)
	for len(data) > 0 {
		token := data[0]
		literals, rest, ok := lz4Length(int(token>>4), data[1:])
		if !ok || literals > len(rest) || literals > size-len(out) {
			return nil, errLZ4
		}
		out = append(out, rest[:literals]...)
		data = rest[literals:]
		if len(data) == 0 || len(out) == size {
			break // the last sequence has no match
		}
		if len(data) < 2 {
			return nil, errLZ4
		}
		distance := int(data[0]) | int(data[1])<<8
		length, rest, ok := lz4Length(int(token&15), data[2:])
		length += 4
		if !ok || distance == 0 || distance > len(out) || length > size-len(out) {
			return nil, errLZ4
		}
		for range length { // the match may overlap what it makes
			out = append(out, out[len(out)-distance])
		}
		data = rest
	}
	if len(out) != size {
		return nil, errLZ4
	}
	return out, nil
}

// lz4Length reads the rest of a length that begins in a token.
func lz4Length(length int, data []byte) (total int, rest []byte, ok bool) {
	if length < 15 {
		return length, data, true
	}
	for i, b := range data {
		length += int(b)
		if b < 255 {
			return length, data[i+1:], length >= 0
		}
	}
	return 0, nil, false
}
