package plot

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// The line of the best so far crosses no label of a ladder, and is there between them.
func TestLadderLineCrossesNoLabel(t *testing.T) {
	t.Parallel()
	l := &Ladder{Unit: "us"}
	for i, value := range []float64{100, 90, 40, 38, 12, 3, 2.9, 2.8, 2.7} {
		l.Steps = append(l.Steps, Step{Name: fmt.Sprintf("stage%d+WITH_A_LONG_KNOB=1", i), Value: value})
	}
	c := &canvas{}
	l.draw(c)
	d := regexp.MustCompile(`class="k l\d" d="([^"]*)"`).FindStringSubmatch(c.grid.String())
	if d == nil {
		t.Fatalf("there is no line in %s", c.grid.String())
	}
	if strings.Count(d[1], "M") < 2 {
		t.Errorf("the line has no gap, though labels are in its way: %s", d[1])
	}
	var pen point
	for _, command := range regexp.MustCompile(`([ML])(\S+) ([0-9.-]+)`).FindAllStringSubmatch(d[1], -1) {
		var to point
		if _, err := fmt.Sscan(command[2], &to.x); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(command[3], &to.y); err != nil {
			t.Fatal(err)
		}
		for i := 0; command[1] == "L" && i <= 100; i++ {
			share := float64(i) / 100
			x, y := pen.x+share*(to.x-pen.x), pen.y+share*(to.y-pen.y)
			for _, b := range c.texts {
				if b.left < x && x < b.right && b.top < y && y < b.bottom {
					t.Fatalf("the line crosses %+v at %g, %g", b, x, y)
				}
			}
		}
		pen = to
	}
}

func TestOutside(t *testing.T) {
	t.Parallel()
	text := box{left: 10, top: 10, right: 20, bottom: 20}
	for _, c := range []struct {
		from, to point
		want     string
	}{
		{point{0, 15}, point{100, 15}, "[[0 0.08] [0.22 1]]"},
		{point{15, 0}, point{15, 100}, "[[0 0.08] [0.22 1]]"},
		{point{30, 0}, point{30, 100}, "[[0 1]]"},
		{point{0, 30}, point{100, 100}, "[[0 1]]"},
		{point{12, 12}, point{18, 18}, "[]"},
	} {
		if got := fmt.Sprint(outside(c.from, c.to, []box{text})); got != c.want {
			t.Errorf("%v to %v: got %s, want %s", c.from, c.to, got, c.want)
		}
	}
}
