// Package plottest checks plots: whether their labels can be read.
package plottest

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"attune/internal/plot"
)

// Sizes of letters, in units of the page.
const (
	defaultSize = 12.0
	smallest    = 11.0
)

// box is the room of a text.
type box struct{ left, top, right, bottom float64 }

func (b box) overlaps(other box) bool {
	return b.left < other.right && other.left < b.right && b.top < other.bottom && other.top < b.bottom
}

// roomOf is the room of a text whose baseline is at y.
func roomOf(x, y float64, at string, size float64, bold bool, text string) box {
	width := plot.TextWidth(text, size, bold)
	switch at {
	case "middle":
		x -= width / 2
	case "end":
		x -= width
	}
	return box{left: x, top: y - 0.8*size, right: x + width, bottom: y + 0.2*size}
}

// placed is a text of a plot and its room.
type placed struct {
	text string
	size float64
	room box
}

// segment is a straight piece of a dashed line.
type segment struct{ x1, y1, x2, y2 float64 }

// crosses reports whether a piece goes through a room, apart from its edge.
func (s segment) crosses(b box) bool {
	const edge, steps = 1, 200
	for i := range steps + 1 {
		t := float64(i) / steps
		x, y := s.x1+t*(s.x2-s.x1), s.y1+t*(s.y2-s.y1)
		if x > b.left+edge && x < b.right-edge && y > b.top+edge && y < b.bottom-edge {
			return true
		}
	}
	return false
}

// pathPoint is a point of a path of straight pieces.
var pathPoint = regexp.MustCompile(`([ML])(-?[0-9.]+) (-?[0-9.]+)`)

// dashed are the pieces of a dashed line or path.
func dashed(element string, values map[string]string) (all []segment) {
	if !slices.Contains(strings.Fields(values["class"]), "k") {
		return nil
	}
	at := func(text string) float64 { v, _ := strconv.ParseFloat(text, 64); return v }
	if element == "line" {
		return []segment{{at(values["x1"]), at(values["y1"]), at(values["x2"]), at(values["y2"])}}
	}
	var x, y float64
	for _, m := range pathPoint.FindAllStringSubmatch(values["d"], -1) {
		if m[1] == "L" {
			all = append(all, segment{x, y, at(m[2]), at(m[3])})
		}
		x, y = at(m[2]), at(m[3])
	}
	return all
}

// read parses a plot: its texts, its dashed lines and its size. Every coordinate must be a finite number.
func read(svg []byte) (texts []placed, lines []segment, width, height float64, err error) {
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	var current *placed
	var x, y float64
	var at string
	bold := false
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return texts, lines, width, height, nil
		}
		if err != nil {
			return nil, nil, 0, 0, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			values := map[string]string{}
			for _, a := range t.Attr {
				values[a.Name.Local] = a.Value
				if strings.Contains(a.Value, "NaN") && a.Name.Local != "class" || strings.Contains(a.Value, "Inf") {
					return nil, nil, 0, 0, fmt.Errorf("<%s %s=%q>", t.Name.Local, a.Name.Local, a.Value)
				}
			}
			switch t.Name.Local {
			case "line", "path":
				lines = append(lines, dashed(t.Name.Local, values)...)
			case "svg":
				if _, err := fmt.Sscanf(values["viewBox"], "0 0 %g %g", &width, &height); err != nil {
					return nil, nil, 0, 0, err
				}
			case "text":
				x, _ = strconv.ParseFloat(values["x"], 64)
				y, _ = strconv.ParseFloat(values["y"], 64)
				current = &placed{size: defaultSize}
				if s, ok := values["font-size"]; ok {
					current.size, _ = strconv.ParseFloat(s, 64)
				}
				at, bold = values["text-anchor"], strings.HasSuffix(values["class"], " b")
			}
		case xml.CharData:
			if current != nil {
				current.text += string(t)
			}
		case xml.EndElement:
			if t.Name.Local == "text" {
				current.room = roomOf(x, y, at, current.size, bold, current.text)
				texts, current = append(texts, *current), nil
			}
		}
	}
}

// Faults are the texts of a plot that overlap, leave the page, are too small or are crossed by a dashed
// line, and coordinates that are no numbers.
func Faults(svg []byte) []string {
	texts, lines, width, height, err := read(svg)
	if err != nil {
		return []string{err.Error()}
	}
	var all []string
	for i, t := range texts {
		if t.room.left < -0.5 || t.room.right > width+0.5 || t.room.top < 0 || t.room.bottom > height {
			all = append(all, fmt.Sprintf("%q leaves the page: %v", t.text, t.room))
		}
		if t.size < smallest {
			all = append(all, fmt.Sprintf("%q has %g units", t.text, t.size))
		}
		if slices.ContainsFunc(lines, func(s segment) bool { return s.crosses(t.room) }) {
			all = append(all, fmt.Sprintf("a dashed line crosses %q", t.text))
		}
		for _, other := range texts[i+1:] {
			if t.room.overlaps(other.room) {
				all = append(all, fmt.Sprintf("%q overlaps %q", t.text, other.text))
			}
		}
	}
	return all
}
