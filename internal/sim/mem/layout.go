package mem

import (
	"cmp"
	"fmt"

	"attune/internal/finding"
	"attune/internal/ptx"
)

// Layout is where the shared variables lie that one entry function uses. Gaps lie between them, so
// that an index that is slightly out of bounds does not reach a neighbour. Each variable begins at
// an address that a compiler could choose for the first variable.
type Layout struct {
	Align        int // alignment of the whole: the largest of any variable
	DynamicAlign int // alignment of dynamic shared memory
	Bytes        int // bytes of the variables as a compiler lays them out, without gaps

	variables []*ptx.Variable
	at        []int  // offset of each variable; -1 for a variable that is not used
	dynamic   string // name of the dynamic variable; empty if there is none, or several
	end       int    // offset after the last variable and its gap
}

const sharedGap = 128

// IsDynamic reports whether a shared variable is in dynamic shared memory.
func IsDynamic(v *ptx.Variable) bool { return v.Extern || v.Count == 0 }

// NewLayout lays out the static variables of a module that are used. used also has the dynamic
// variables.
func NewLayout(static []*ptx.Variable, used map[*ptx.Variable]bool) *Layout {
	l := &Layout{variables: static, at: make([]int, len(static)), Align: 16, DynamicAlign: 16}
	for i, v := range static {
		l.at[i] = -1
		if !used[v] {
			continue
		}
		l.at[i] = AlignUp(l.end, max(v.Align, sharedGap))
		l.end = l.at[i] + v.Size() + sharedGap
		l.Align = max(l.Align, v.Align)
		l.Bytes = AlignUp(l.Bytes, v.Align) + v.Size()
	}
	names := map[string]bool{}
	for v := range used {
		if IsDynamic(v) {
			l.DynamicAlign = max(l.DynamicAlign, v.Align)
			l.dynamic = v.SourceName()
			names[l.dynamic] = true
		}
	}
	if len(names) > 1 {
		l.dynamic = ""
	}
	l.Align = max(l.Align, l.DynamicAlign)
	return l
}

// At returns the offset of a static variable by its index; 0 for a variable that is not used.
func (l *Layout) At(index int) int { return max(l.at[index], 0) }

// DynamicAt returns the offset of dynamic shared memory, after the variables.
func (l *Layout) DynamicAt() int { return AlignUp(l.end, l.DynamicAlign) }

// markGaps marks the bytes between variables.
func (l *Layout) markGaps(marks []byte) {
	Fill(marks[:l.DynamicAt()], Gap)
	for i, at := range l.at {
		if at >= 0 {
			clear(marks[at : at+l.variables[i].Size()])
		}
	}
}

// Variable is the variable that a byte of shared memory belongs to, or else the one before it. size is
// that of all shared memory.
func (l *Layout) Variable(offset, size int) finding.Variable {
	if at := l.DynamicAt(); offset >= at && (size > at || l.dynamic != "") {
		return finding.Variable{Name: cmp.Or(l.dynamic, "dynamic shared memory"), Space: finding.Shared, Bytes: size - at, Offset: offset - at}
	}
	found := -1
	for i, at := range l.at {
		if at >= 0 && at <= offset && (found < 0 || at > l.at[found]) {
			found = i
		}
	}
	if found < 0 {
		return finding.Variable{}
	}
	v := l.variables[found]
	return finding.Variable{Name: v.SourceName(), Space: finding.Shared, Bytes: v.Size(), Offset: offset - l.at[found]}
}

// Describe names the variable that a byte of shared memory belongs to. For a byte after a variable
// it says how far an access of more bytes reaches beyond the variable's end.
func (l *Layout) Describe(offset, more int) string {
	if at := l.DynamicAt(); offset >= at {
		return fmt.Sprintf("byte %d of dynamic shared memory", offset-at)
	}
	text, nearest := "between variables", -1
	for i, at := range l.at {
		v := l.variables[i]
		switch {
		case at < 0 || offset < at || at < nearest:
		case offset < at+v.Size():
			return fmt.Sprintf("%s+%d", v.SourceName(), offset-at)
		default:
			nearest, text = at, fmt.Sprintf("%d bytes past the end of %s (%d bytes)", offset-at-v.Size()+more, v.SourceName(), v.Size())
		}
	}
	return text
}

// Constants is the constant memory of a module.
type Constants struct {
	Data  []byte
	Marks []byte // Written for the bytes of variables, Gap for the others

	bytes int
	at    map[*ptx.Variable]int
}

// constGap separates constants, so that an index that is slightly out of bounds does not reach a
// neighbour.
const constGap = 256

// Add places a variable and its initial value.
func (c *Constants) Add(v *ptx.Variable) {
	c.bytes += v.Size()
	at := AlignUp(len(c.Data), max(v.Align, 4))
	c.Data = append(c.Data, make([]byte, at-len(c.Data)+v.Size()+constGap)...)
	for len(c.Marks) < len(c.Data) {
		c.Marks = append(c.Marks, Gap)
	}
	Fill(c.Marks[at:at+v.Size()], Written)
	copy(c.Data[at:], v.Init)
	if c.at == nil {
		c.at = map[*ptx.Variable]int{}
	}
	c.at[v] = at
}

// Bytes returns the size of all variables, without gaps.
func (c *Constants) Bytes() int { return c.bytes }

// Variables returns the offsets of all variables.
func (c *Constants) Variables() map[*ptx.Variable]int { return c.at }

// Describe says where an address lies that is in no variable.
func (c *Constants) Describe(address int) string {
	text, nearest := "before all variables", -1
	for v, at := range c.at {
		if at <= address && at > nearest {
			nearest, text = at, fmt.Sprintf("%d bytes after the start of %s, which has %d bytes", address-at, v.SourceName(), v.Size())
		}
	}
	return text
}
