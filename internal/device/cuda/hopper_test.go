//go:build linux

package cuda

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"attune/internal/device"
	"attune/internal/device/sim"
	"attune/internal/tensormap"
)

// Kernels that need Hopper or later. The simulator runs them too, which checks them without a GPU.
const hopperPTX = `
.version 8.0
.target sm_90
.address_size 64

// copy copies one tensor to another, one box per block: 16 rows of 64 bytes, with the same swizzle.
.visible .entry copy(.param .u64 in, .param .u64 out, .param .u32 n, .param .align 64 .b8 from[128], .param .align 64 .b8 to[128])
{
	.reg .pred %p<2>;
	.reg .b32 %r<8>;
	.reg .b64 %rd<6>;
	.shared .align 1024 .b8 box[1024];
	.shared .align 8 .b64 full;
	mov.u32 %r1, %ctaid.x;
	shl.b32 %r2, %r1, 4;
	mov.u32 %r3, 0;
	mov.u32 %r4, box;
	mov.u32 %r5, full;
	mov.b64 %rd1, from;
	cvta.param.u64 %rd2, %rd1;
	mov.b64 %rd3, to;
	cvta.param.u64 %rd4, %rd3;
	mbarrier.init.shared.b64 [%r5], 1;
	fence.mbarrier_init.release.cluster;
	mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 1024;
	cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd2, {%r3, %r2}], [%r5];
WAIT:
	mbarrier.try_wait.parity.shared.b64 %p1, [%r5], 0;
	@!%p1 bra WAIT;
	cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd4, {%r3, %r2}], [%r4];
	cp.async.bulk.commit_group;
	cp.async.bulk.wait_group 0;
	ret;
}

// around: each block writes the number of the next block of its cluster, which it reads from that
// block's shared memory. A cluster size other than n traps.
.visible .entry around(.param .u64 out, .param .u32 n)
{
	.reg .pred %p<2>;
	.reg .b32 %r<11>;
	.reg .b64 %rd<4>;
	.shared .align 4 .b32 own;
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %cluster_ctarank;
	mov.u32 %r3, %cluster_nctarank;
	ld.param.u32 %r10, [n];
	setp.ne.u32 %p1, %r3, %r10;
	@%p1 trap;
	add.u32 %r4, %r1, 1000;
	st.shared.u32 [own], %r4;
	barrier.cluster.arrive;
	barrier.cluster.wait;
	add.u32 %r5, %r2, 1;
	rem.u32 %r6, %r5, %r3;
	mov.u32 %r7, own;
	mapa.shared::cluster.u32 %r8, %r7, %r6;
	ld.shared::cluster.u32 %r9, [%r8];
	ld.param.u64 %rd1, [out];
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r9;
	barrier.cluster.arrive;
	barrier.cluster.wait;
	ret;
}
`

// hopperJob is a job for Hopper or later and its expected output.
type hopperJob struct {
	name string
	device.Job
	want []byte
}

func hopperJobs() []hopperJob {
	const rows, width = 40, 64 // two boxes and a half
	in := make([]byte, rows*width)
	for i := range in {
		in[i] = byte(i*7 + i/251)
	}
	of := func(arg int, promotion string) device.Arg {
		return device.Arg{TensorMap: &device.TensorMap{Arg: arg, Map: tensormap.Map{
			Type: "u8", Dims: []int{width, rows}, Strides: []int{width}, Box: []int{width, 16}, Swizzle: "64B", L2Promotion: promotion,
		}}}
	}
	jobs := []hopperJob{{"tensor maps", device.Job{
		Image: []byte(hopperPTX), Entry: "copy", Grid: [3]int{3, 1, 1}, Block: [3]int{1, 1, 1},
		Args: []device.Arg{device.In(in), device.Out(len(in)), device.Int32(7), of(0, "256B"), of(1, "")},
	}, in}}
	const blocks = 32
	for _, n := range []int{1, 2, 4, 8, 16} { // more than 8 is not portable
		var want []byte
		for i := range blocks {
			want = binary.LittleEndian.AppendUint32(want, uint32(1000+i/n*n+(i+1)%n))
		}
		jobs = append(jobs, hopperJob{"clusters of " + strconv.Itoa(n), device.Job{
			Image: []byte(hopperPTX), Entry: "around", Grid: [3]int{blocks, 1, 1}, Block: [3]int{1, 1, 1}, Cluster: [3]int{n, 1, 1},
			Args: []device.Arg{device.Out(4 * blocks), device.Int32(int32(n))},
		}, want})
	}
	return jobs
}

func TestHopperKernelsOnTheSimulator(t *testing.T) {
	d := sim.Open(sim.Options{Schedules: 3, Checks: true})
	none := hopperJobs()[2]
	none.Cluster = [3]int{}
	if _, err := d.Run(t.Context(), none.Job); !isFault(err, "simulator") {
		t.Errorf("%s, launched without clusters: %v; want a fault", none.name, err)
	}
	for _, job := range hopperJobs() {
		got, err := d.Run(t.Context(), job.Job)
		if err != nil {
			t.Errorf("%s: %v", job.name, err)
		} else if len(got.Findings) > 0 || !bytes.Equal(got.Outputs[0], job.want) {
			t.Errorf("%s: findings %v, output %x, want %x", job.name, got.Findings, got.Outputs[0], job.want)
		}
	}
}

// needHopper skips a test on a chip before Hopper.
func needHopper(t *testing.T, facts device.Facts) {
	t.Helper()
	if arch, err := strconv.Atoi(strings.TrimPrefix(facts.Arch, "sm_")); err != nil || arch < 90 {
		t.Skipf("%s (%s) has no clusters and no tensor maps; want sm_90 or later", facts.Name, facts.Arch)
	}
}

func TestGPUHopper(t *testing.T) {
	m := openGPU(t)
	needHopper(t, m.Facts())
	for _, job := range hopperJobs() {
		got, err := device.Run(m, job.Job)
		if err != nil {
			t.Errorf("%s: %v", job.name, err)
		} else if len(got.Findings) > 0 || !bytes.Equal(got.Outputs[0], job.want) {
			t.Errorf("%s: findings %v, output %x, want %x", job.name, got.Findings, got.Outputs[0], job.want)
		}
	}
}

// Graphs keep cluster sizes and tensor maps: a launch without its clusters is a fault, and so is
// one with a map of a freed buffer. Two jobs have separate buffers.
func TestGPUTimeHopper(t *testing.T) {
	m := openGPU(t)
	needHopper(t, m.Facts())
	for _, job := range hopperJobs() {
		got, err := m.Time([]device.Job{job.Job, job.Job}, device.Plan{Samples: 3})
		if err != nil {
			t.Errorf("%s: %v", job.name, err)
			continue
		}
		for i, s := range got {
			if len(s.Seconds) != 3 || s.LaunchesPerSample < 1 || slices.Min(s.Seconds) <= 0 {
				t.Errorf("%s: series %d: %+v", job.name, i, s)
			}
		}
	}
}

// A child process gives the same outputs: the messages carry clusters and tensor maps.
func TestGPUHopperInAChild(t *testing.T) {
	d := startGPU(t, time.Minute)
	needHopper(t, d.Facts())
	for _, job := range hopperJobs() {
		got, err := d.Run(t.Context(), job.Job)
		if err != nil || len(got.Findings) > 0 || !bytes.Equal(got.Outputs[0], job.want) {
			t.Fatalf("%s: %+v, %v", job.name, got, err)
		}
	}
}
