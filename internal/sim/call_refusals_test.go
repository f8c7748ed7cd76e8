package sim

import (
	"strings"
	"testing"
)

// TestCallRefusals tests calls that PTX does not allow. Each is refused with the line of the call,
// and none crashes the simulator.
func TestCallRefusals(t *testing.T) {
	t.Parallel()
	check := func(name, declarations, body string, want ...string) {
		t.Helper()
		_, err := try(t, setup{text: kernelWith(declarations, body+"\n ret;"), steps: 10000})
		if err == nil {
			t.Errorf("%s: no error", name)
			return
		}
		for _, text := range want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: error %q does not contain %q", name, err, text)
			}
		}
	}
	wide := ".param .b64 a; .param .b64 b; .param .b32 c; .param .b32 d;\n "
	check("vprintf without parameters", ".extern .func vprintf();", "call vprintf, ();", "PTX line ", "vprintf", ".param .b64")
	check("vprintf with one parameter", ".extern .func (.param .b32 r) vprintf(.param .b64 f);", wide+"call (c), vprintf, (a);", "vprintf")
	check("vprintf with two results", ".extern .func (.param .b32 r, .param .b32 s) vprintf(.param .b64 f, .param .b64 a);",
		wide+"call (c, d), vprintf, (a, b);", "vprintf")
	check("vprintf with a short address", ".extern .func (.param .b32 r) vprintf(.param .b32 f, .param .b64 a);",
		wide+"call (c), vprintf, (d, b);", "vprintf")
	check("free without a parameter", ".extern .func free();", "call free, ();", "free", ".param .b64")
	check("free with a result", ".extern .func (.param .b64 r) free(.param .b64 a);", wide+"call (b), free, (a);", "free")
	check("malloc without a result", ".extern .func malloc(.param .b64 n);", wide+"call malloc, (a);", "malloc")
	check("malloc with a short size", ".extern .func (.param .b64 r) malloc(.param .b32 n);", wide+"call (a), malloc, (c);", "malloc")
	check("__assertfail without a parameter", ".extern .func __assertfail();", "call __assertfail, ();", "__assertfail")

	check("a launch by a kernel", ".extern .func (.param .b32 r) cudaLaunchDeviceV2(.param .b64 p, .param .b64 s);", wide+"call (c), cudaLaunchDeviceV2, (a, b);",
		"cudaLaunchDeviceV2", "dynamic parallelism")

	one := ".func (.param .b64 r) f(.param .b64 a)\n{ ret; }"
	check("an entry's parameter as a result", one, wide+"call (p0), f, (a);", "the parameter p0 of the entry")
	check("an entry's parameter as an argument", one, wide+"call (a), f, (p0);", "the parameter p0 of the entry")
	check("a constant as a result", one, wide+"call (5), f, (a);", "result")
	check("the address of a variable as a result", ".global .u64 g;\n"+one, wide+"call (g), f, (a);", "result")
	check("a special register as a result", one, wide+"call (%tid.x), f, (a);", "result")
	check("128 bits", ".func f(.reg .b128 a)\n{ ret; }", ".reg .b128 %q;\n call f, (%q);", "128 bits")
	check("a call of the entry", "", wide+"call k, (a, b);", "entry")
	check("an indirect call of the entry", "", wide+"mov.u64 %rd5, k;\n P: .callprototype _ (.param .b64 x, .param .b64 y);\n call %rd5, (a, b), P;",
		"indirect call at ptx:")
	check("an argument that is too large", ".func f(.param .b32 a)\n{ ret; }", wide+"call f, (a);", "f takes 4 bytes as argument 0, and the call has 8")
	check("a result that is too small", ".func (.param .b64 r) f()\n{ ret; }", wide+"call (c), f, ();", "f returns 8 bytes as result 0, and the call has 4")
}

// TestCallsOfAllForms passes predicates and several results between functions.
func TestCallsOfAllForms(t *testing.T) {
	t.Parallel()
	text := kernelWith(`.func (.param .b32 r, .param .b64 s) two(.param .b32 a)
{
	.reg .b32 %x<4>;
	.reg .b64 %y<2>;
	ld.param.u32 %x0, [a];
	add.u32 %x1, %x0, 1;
	st.param.u32 [r], %x1;
	cvt.u64.u32 %y0, %x0;
	st.param.u64 [s], %y0;
	ret;
}
.func (.reg .pred q) odd(.reg .b32 a, .reg .pred p)
{
	.reg .b32 %x<4>;
	.reg .pred %z;
	and.b32 %x0, a, 1;
	setp.eq.u32 %z, %x0, 1;
	and.pred q, %z, p;
	ret;
}`, storing(`.param .b32 a; .param .b32 r; .param .b64 s;
	st.param.u32 [a], %r0;
	call (r, s), two, (a);
	ld.param.u32 %r1, [r];
	ld.param.u64 %rd5, [s];
	cvt.u32.u64 %r2, %rd5;
	add.u32 %r1, %r1, %r2;
	setp.lt.u32 %p1, %r0, 8;
	call (%p2), odd, (%r0, %p1);
	@%p2 add.u32 %r1, %r1, 1000;`))
	schedules(t, "two results", setup{text: text}, each(32, func(i uint32) uint32 {
		if i < 8 && i%2 == 1 {
			return 2*i + 1001
		}
		return 2*i + 1
	}))
}
