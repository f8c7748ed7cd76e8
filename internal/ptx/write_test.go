package ptx

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// writer prints a module as flat PTX: one scope per function, registers named by their index,
// labels by the index of their instruction, and one instruction per line, with its source line as a
// comment.
type writer struct {
	strings.Builder
	remarks bool
	names   map[*Variable]string
	lists   int
}

func write(m *Module, remarks bool) string {
	w := &writer{names: map[*Variable]string{}, remarks: remarks}
	w.line(".version %d.%d", m.Version[0], m.Version[1])
	w.line(".target %s", m.Target)
	w.line(".address_size 64")
	for index := range 100 {
		if name, ok := m.Files[index]; ok {
			w.line(".file %d \"%s\"", index, name)
		}
	}
	for _, f := range m.Functions {
		w.header(f, false)
		w.line(";")
	}
	var pointers []*Variable // declared first and defined last, because they may refer to each other
	for _, v := range m.Variables {
		if v.Relocations == nil {
			w.variable(v, v.Name)
		} else {
			pointers = append(pointers, v)
		}
	}
	for _, v := range pointers {
		w.names[v] = v.Name
		declared := *v
		declared.Extern, declared.Init = true, nil
		w.variable(&declared, v.Name)
	}
	for _, v := range pointers {
		w.variable(v, v.Name)
	}
	for _, f := range m.Functions {
		if !f.External {
			w.header(f, true)
			w.body(f)
		}
	}
	return w.String()
}

func (w *writer) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// remark ends the line, with a comment if remarks are on.
func (w *writer) remark(format string, args ...any) {
	if w.remarks {
		fmt.Fprintf(w, " // "+format, args...)
	}
	w.line("")
}

func (w *writer) header(f *Function, defined bool) {
	if f.External {
		w.WriteString(".extern ")
	}
	if f.Entry {
		w.WriteString(".entry ")
	} else {
		w.WriteString(".func ")
	}
	if len(f.Returns) > 0 {
		w.WriteString("(" + w.parameters(f.Returns) + ") ")
	}
	w.line("%s(%s)", f.Name, w.parameters(f.Params))
	if !defined {
		return
	}
	if f.ExplicitCluster {
		w.line(".explicitcluster")
	}
	for _, d := range []struct {
		name  string
		value [3]int
	}{
		{"maxntid", f.MaxThreads},
		{"reqntid", f.RequiredThreads},
		{"reqnctapercluster", f.ClusterBlocks},
		{"minnctapersm", [3]int{f.MinBlocks}},
		{"maxnreg", [3]int{f.MaxRegisters}},
	} {
		if d.value[0] > 0 {
			text := fmt.Sprint(d.value)
			if d.value[1] == 0 {
				text = fmt.Sprint(d.value[0])
			}
			w.line(".%s %s", d.name, strings.ReplaceAll(strings.Trim(text, "[]"), " ", ", "))
		}
	}
}

func (w *writer) parameters(params []*Variable) string {
	var all []string
	for _, v := range params {
		switch {
		case v.Space != Reg:
			all = append(all, fmt.Sprintf(".param .align %d %s.%s %s%s", v.Align, vector(v), v.Type, v.Name, size(v)))
		case v.Register < 0: // a parameter of a prototype
			all = append(all, fmt.Sprintf(".reg .%s _", v.Type))
		default:
			all = append(all, fmt.Sprintf(".reg .%s %%x%d", v.Type, v.Register))
		}
		w.names[v] = v.Name
	}
	return strings.Join(all, ", ")
}

func size(v *Variable) string {
	switch {
	case !v.IsArray:
		return ""
	case v.Count == 0:
		return "[]"
	}
	return fmt.Sprintf("[%d]", v.Count)
}

func vector(v *Variable) string {
	if v.Vector == 1 {
		return ""
	}
	return fmt.Sprintf(".v%d ", v.Vector)
}

func (w *writer) variable(v *Variable, name string) {
	w.names[v] = name
	if v.Extern {
		w.WriteString(".extern ")
	} else if v.Visible {
		w.WriteString(".visible ")
	}
	if v.Managed {
		w.WriteString(".global .attribute(.managed)")
	} else {
		fmt.Fprintf(w, ".%s", v.Space)
	}
	fmt.Fprintf(w, " .align %d %s.%s %s%s", v.Align, vector(v), v.Type, name, size(v))
	if v.Init != nil {
		w.WriteString(" = " + w.initial(v))
	}
	w.line(";")
}

// initial prints an initialiser: arrays as a list in braces, vectors as lists inside it.
func (w *writer) initial(v *Variable) string {
	var values []string
	for offset := 0; offset < len(v.Init); offset += v.Type.Size() {
		values = append(values, w.element(v, offset))
	}
	if v.Vector > 1 {
		var vectors []string
		for parts := range slices.Chunk(values, v.Vector) {
			vectors = append(vectors, "{"+strings.Join(parts, ", ")+"}")
		}
		values = vectors
	}
	text := strings.Join(values, ", ")
	if v.IsArray || text == "" {
		return "{" + text + "}"
	}
	return text
}

func (w *writer) element(v *Variable, offset int) string {
	for _, at := range v.Relocations {
		if at.Offset != offset {
			continue
		}
		text := w.symbol(at.Symbol)
		if at.Generic {
			text = "generic(" + text + ")"
		}
		if at.Addend != 0 {
			text += fmt.Sprintf("+%d", at.Addend)
		}
		if v.Type.Size() == 1 {
			text = fmt.Sprintf("%#x(%s)", uint64(0xFF)<<at.Shift, text)
		}
		return text
	}
	var code [8]byte
	copy(code[:], v.Init[offset:][:v.Type.Size()])
	value := binary.LittleEndian.Uint64(code[:])
	switch v.Type {
	case F32:
		return fmt.Sprintf("0f%08X", value)
	case F64:
		return fmt.Sprintf("0d%016X", value)
	}
	return fmt.Sprint(value)
}

func (w *writer) symbol(s Symbol) string {
	if s.Function != nil {
		return s.Function.Name
	}
	return w.names[s.Variable]
}

func (w *writer) body(f *Function) {
	w.line("{")
	held := 0
	for _, v := range slices.Concat(f.Returns, f.Params) {
		if v.Space == Reg {
			held++
		}
	}
	for i, r := range f.Registers[held:] {
		fmt.Fprintf(w, "\t.reg .%s %%x%d;", r.Type, held+i)
		w.remark("%s", r.Name)
	}
	for i, v := range f.Variables {
		name, _, _ := strings.Cut(v.Name, "$$$")
		w.variable(v, fmt.Sprintf("%s$$$%d", name, i))
	}
	targets := map[int]bool{}
	for _, in := range f.Code {
		for _, target := range in.Targets {
			targets[target] = true
		}
	}
	for i := range f.Code {
		if targets[i] {
			w.line("$$$L%d:", i)
		}
		w.instruction(&f.Code[i])
	}
	if targets[len(f.Code)] {
		w.line("$$$L%d:", len(f.Code))
	}
	w.line("}")
}

func (w *writer) instruction(in *Instruction) {
	guard, list := "", ""
	if in.Guard >= 0 {
		guard = fmt.Sprintf("@%%x%d ", in.Guard)
		if in.GuardNot {
			guard = fmt.Sprintf("@!%%x%d ", in.Guard)
		}
	}
	var operands []string
	for i, operand := range in.Operands {
		text := w.operand(operand)
		if text == "()" && i == 0 {
			continue
		}
		operands = append(operands, text)
	}
	switch {
	case in.Opcode == "bra":
		operands = []string{fmt.Sprintf("$$$L%d", in.Targets[0])}
	case in.Opcode == "brx":
		for _, target := range in.Targets {
			list += fmt.Sprintf(", $$$L%d", target)
		}
		list = ".branchtargets " + list[2:]
	case in.Prototype != nil:
		list = ".callprototype "
		if len(in.Prototype.Returns) > 0 {
			list += "(" + w.parameters(in.Prototype.Returns) + ") "
		}
		list += "_ (" + w.parameters(in.Prototype.Params) + ")"
	case in.Callees != nil:
		for _, callee := range in.Callees {
			list += ", " + callee.Name
		}
		list = ".calltargets " + list[2:]
	}
	if list != "" {
		w.lists++
		name := fmt.Sprintf("$$$T%d", w.lists)
		w.line("%s: %s;", name, list)
		operands = append(operands, name)
	}
	opcode := strings.Join(append([]string{in.Opcode}, in.Modifiers...), ".")
	fmt.Fprintf(w, "\t%s;", strings.TrimSpace(guard+opcode+" "+strings.Join(operands, ", ")))
	w.remark("line %d%s", in.Line, place(in.Location))
}

func place(l *Location) string {
	text := ""
	for ; l != nil; l = l.Inlined {
		text += fmt.Sprintf(" %d:%d:%d", l.File, l.Line, l.Column)
		if l.Function != "" {
			text += " " + l.Function
		}
	}
	return text
}

func (w *writer) operand(o Operand) string {
	var parts []string
	for _, part := range o.Parts {
		parts = append(parts, w.operand(part))
	}
	joined := strings.Join(parts, ", ")
	switch o.Kind {
	case RegOperand:
		if o.Negated {
			return fmt.Sprintf("!%%x%d", o.Register)
		}
		return fmt.Sprintf("%%x%d", o.Register)
	case ImmOperand:
		switch o.Number {
		case Float32:
			return fmt.Sprintf("0f%08X", o.Value)
		case Float64:
			return fmt.Sprintf("0d%016X", o.Value)
		}
		return fmt.Sprint(int64(o.Value))
	case VecOperand:
		return "{" + joined + "}"
	case AddrOperand:
		if o.Offset != 0 {
			parts[0] += fmt.Sprintf("+%d", o.Offset)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case SymOperand:
		if o.Offset != 0 {
			return fmt.Sprintf("%s+%d", w.symbol(o.Symbol), o.Offset)
		}
		return w.symbol(o.Symbol)
	case SpecialOperand:
		return "%" + o.Special
	case PairOperand:
		return strings.Join(parts, "|")
	case SinkOperand:
		return "_"
	case ListOperand:
		return "(" + joined + ")"
	}
	return "none"
}
