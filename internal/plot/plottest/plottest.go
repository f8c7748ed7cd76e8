// Package plottest checks plots: whether their labels can be read.
package plottest

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
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

// read parses a plot: its texts and its size. Every coordinate must be a finite number.
func read(svg []byte) (texts []placed, width, height float64, err error) {
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	var current *placed
	var x, y float64
	var at string
	bold := false
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return texts, width, height, nil
		}
		if err != nil {
			return nil, 0, 0, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			values := map[string]string{}
			for _, a := range t.Attr {
				values[a.Name.Local] = a.Value
				if strings.Contains(a.Value, "NaN") && a.Name.Local != "class" || strings.Contains(a.Value, "Inf") {
					return nil, 0, 0, fmt.Errorf("<%s %s=%q>", t.Name.Local, a.Name.Local, a.Value)
				}
			}
			switch t.Name.Local {
			case "svg":
				if _, err := fmt.Sscanf(values["viewBox"], "0 0 %g %g", &width, &height); err != nil {
					return nil, 0, 0, err
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

// Faults are the texts of a plot that overlap, leave the page or are too small, and coordinates that
// are no numbers.
func Faults(svg []byte) []string {
	texts, width, height, err := read(svg)
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
		for _, other := range texts[i+1:] {
			if t.room.overlaps(other.room) {
				all = append(all, fmt.Sprintf("%q overlaps %q", t.text, other.text))
			}
		}
	}
	return all
}
