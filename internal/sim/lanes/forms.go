package lanes

import (
	"maps"
	"slices"
)

// Code identifies an operation. The jump table at the end of lanes_amd64.s is in the same order.
type Code uint32

// The operations. Their names are those of PTX. None is the code of an instruction that has no
// compact form.
const (
	None Code = iota
	Mov32
	add32
	sub32
	mul32
	mad32
	and32
	or32
	xor32
	shl32
	shrU32
	shrS32
	minS32
	maxS32
	minU32
	maxU32
	selp32
	addF32
	subF32
	mulF32
	fmaF32
	minF32
	maxF32
	cvtF32F16
	cvtF32S32
	eq32
	ne32
	ltS32
	geS32
	ltU32
	geU32
	eqF32
	neuF32
	ltF32
	leF32
	Mov64
	add64
	sub64
	and64
	or64
	shl64
	shrU64
	selp64
	mulWideU32
	mulWideS32
	madWideU32
	madWideS32
	cvtU64U32
	cvtS64S32
	cvtU32U64
	Pack32
	Unpack32
	Pack64
	Unpack64
	fmaSatF32
	maxNaNF32
	addFtzF32
	subFtzF32
	mulFtzF32
	fmaFtzF32
	minFtzF32
	maxFtzF32
	eqFtzF32
	neuFtzF32
	ltFtzF32
	leFtzF32
	ltuFtzF32
	leuFtzF32
	ltuF32
	leuF32
	absF32
	negF32
	absFtzF32
	negFtzF32
	mulHiU32
	mul64
	not32
	eq64
	ne64
	ltS64
	geS64
	cvtU32U16
	andPred
	orPred
	xorPred
	codes
)

// Form is the compact form of a PTX instruction.
type Form struct {
	Code    Code
	Swapped bool // the operation takes the second source operand first
}

// Lookup returns the compact form of an instruction by its opcode and modifiers, such as
// "add.s32". Every form produces the same bits as package arith.
func Lookup(name string) (Form, bool) {
	f, found := forms[name]
	return f, found
}

// Names lists the instructions that have a compact form, sorted.
func Names() []string { return slices.Sorted(maps.Keys(forms)) }

var forms = map[string]Form{
	"add.s32":          {Code: add32},
	"add.u32":          {Code: add32},
	"sub.s32":          {Code: sub32},
	"sub.u32":          {Code: sub32},
	"mul.lo.s32":       {Code: mul32},
	"mul.lo.u32":       {Code: mul32},
	"mad.lo.s32":       {Code: mad32},
	"mad.lo.u32":       {Code: mad32},
	"and.b32":          {Code: and32},
	"or.b32":           {Code: or32},
	"xor.b32":          {Code: xor32},
	"shl.b32":          {Code: shl32},
	"shr.u32":          {Code: shrU32},
	"shr.b32":          {Code: shrU32},
	"shr.s32":          {Code: shrS32},
	"min.s32":          {Code: minS32},
	"max.s32":          {Code: maxS32},
	"min.u32":          {Code: minU32},
	"max.u32":          {Code: maxU32},
	"selp.b32":         {Code: selp32},
	"selp.u32":         {Code: selp32},
	"selp.s32":         {Code: selp32},
	"selp.f32":         {Code: selp32},
	"add.f32":          {Code: addF32},
	"add.rn.f32":       {Code: addF32},
	"sub.f32":          {Code: subF32},
	"sub.rn.f32":       {Code: subF32},
	"mul.f32":          {Code: mulF32},
	"mul.rn.f32":       {Code: mulF32},
	"fma.rn.f32":       {Code: fmaF32},
	"mad.rn.f32":       {Code: fmaF32},
	"min.f32":          {Code: minF32},
	"max.f32":          {Code: maxF32},
	"max.NaN.f32":      {Code: maxNaNF32},
	"fma.rn.sat.f32":   {Code: fmaSatF32},
	"cvt.f32.f16":      {Code: cvtF32F16},
	"cvt.rn.f32.s32":   {Code: cvtF32S32},
	"setp.eq.s32":      {Code: eq32},
	"setp.eq.u32":      {Code: eq32},
	"setp.eq.b32":      {Code: eq32},
	"setp.ne.s32":      {Code: ne32},
	"setp.ne.u32":      {Code: ne32},
	"setp.ne.b32":      {Code: ne32},
	"setp.lt.s32":      {Code: ltS32},
	"setp.gt.s32":      {Code: ltS32, Swapped: true},
	"setp.ge.s32":      {Code: geS32},
	"setp.le.s32":      {Code: geS32, Swapped: true},
	"setp.lt.u32":      {Code: ltU32},
	"setp.lo.u32":      {Code: ltU32},
	"setp.gt.u32":      {Code: ltU32, Swapped: true},
	"setp.hi.u32":      {Code: ltU32, Swapped: true},
	"setp.ge.u32":      {Code: geU32},
	"setp.hs.u32":      {Code: geU32},
	"setp.le.u32":      {Code: geU32, Swapped: true},
	"setp.ls.u32":      {Code: geU32, Swapped: true},
	"setp.eq.f32":      {Code: eqF32},
	"setp.neu.f32":     {Code: neuF32},
	"setp.lt.f32":      {Code: ltF32},
	"setp.gt.f32":      {Code: ltF32, Swapped: true},
	"setp.le.f32":      {Code: leF32},
	"setp.ge.f32":      {Code: leF32, Swapped: true},
	"add.s64":          {Code: add64},
	"add.u64":          {Code: add64},
	"sub.s64":          {Code: sub64},
	"sub.u64":          {Code: sub64},
	"and.b64":          {Code: and64},
	"or.b64":           {Code: or64},
	"shl.b64":          {Code: shl64},
	"shr.u64":          {Code: shrU64},
	"shr.b64":          {Code: shrU64},
	"selp.b64":         {Code: selp64},
	"selp.u64":         {Code: selp64},
	"selp.s64":         {Code: selp64},
	"selp.f64":         {Code: selp64},
	"mul.wide.u32":     {Code: mulWideU32},
	"mul.wide.s32":     {Code: mulWideS32},
	"mad.wide.u32":     {Code: madWideU32},
	"mad.wide.s32":     {Code: madWideS32},
	"cvt.u64.u32":      {Code: cvtU64U32},
	"cvt.s64.s32":      {Code: cvtS64S32},
	"cvt.u32.u64":      {Code: cvtU32U64},
	"add.ftz.f32":      {Code: addFtzF32},
	"add.rn.ftz.f32":   {Code: addFtzF32},
	"sub.ftz.f32":      {Code: subFtzF32},
	"sub.rn.ftz.f32":   {Code: subFtzF32},
	"mul.ftz.f32":      {Code: mulFtzF32},
	"mul.rn.ftz.f32":   {Code: mulFtzF32},
	"fma.rn.ftz.f32":   {Code: fmaFtzF32},
	"mad.rn.ftz.f32":   {Code: fmaFtzF32},
	"min.ftz.f32":      {Code: minFtzF32},
	"max.ftz.f32":      {Code: maxFtzF32},
	"setp.eq.ftz.f32":  {Code: eqFtzF32},
	"setp.neu.ftz.f32": {Code: neuFtzF32},
	"setp.lt.ftz.f32":  {Code: ltFtzF32},
	"setp.gt.ftz.f32":  {Code: ltFtzF32, Swapped: true},
	"setp.le.ftz.f32":  {Code: leFtzF32},
	"setp.ge.ftz.f32":  {Code: leFtzF32, Swapped: true},
	"setp.ltu.ftz.f32": {Code: ltuFtzF32},
	"setp.gtu.ftz.f32": {Code: ltuFtzF32, Swapped: true},
	"setp.leu.ftz.f32": {Code: leuFtzF32},
	"setp.geu.ftz.f32": {Code: leuFtzF32, Swapped: true},
	"setp.ltu.f32":     {Code: ltuF32},
	"setp.gtu.f32":     {Code: ltuF32, Swapped: true},
	"setp.leu.f32":     {Code: leuF32},
	"setp.geu.f32":     {Code: leuF32, Swapped: true},
	"abs.f32":          {Code: absF32},
	"neg.f32":          {Code: negF32},
	"abs.ftz.f32":      {Code: absFtzF32},
	"neg.ftz.f32":      {Code: negFtzF32},
	"mul.hi.u32":       {Code: mulHiU32},
	"mul.lo.s64":       {Code: mul64},
	"mul.lo.u64":       {Code: mul64},
	"not.b32":          {Code: not32},
	"setp.eq.s64":      {Code: eq64},
	"setp.eq.u64":      {Code: eq64},
	"setp.eq.b64":      {Code: eq64},
	"setp.ne.s64":      {Code: ne64},
	"setp.ne.u64":      {Code: ne64},
	"setp.ne.b64":      {Code: ne64},
	"setp.lt.s64":      {Code: ltS64},
	"setp.gt.s64":      {Code: ltS64, Swapped: true},
	"setp.ge.s64":      {Code: geS64},
	"setp.le.s64":      {Code: geS64, Swapped: true},
	"cvt.u32.u16":      {Code: cvtU32U16},
	"and.pred":         {Code: andPred},
	"or.pred":          {Code: orPred},
	"xor.pred":         {Code: xorPred},
}
