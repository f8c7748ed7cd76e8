package sim

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"attune/internal/finding"
	"attune/internal/sim/mem"
)

// runClusters runs a kernel in clusters, with 32 threads per block.
func runClusters(t *testing.T, body string, o Options, blocks int, cluster [3]int) (out []uint32, found []finding.Finding, err error) {
	t.Helper()
	p, err := Load(mustParse(t, kernelWith(".shared .align 16 .b8 s[128];\n.shared .align 8 .b8 bar[8];\n", storing(body))), "")
	if err != nil {
		t.Fatal(err)
	}
	memory := mem.NewMemory()
	buf := buffer(t, memory, "out", 4*32*blocks)
	l := Launch{
		Grid: [3]int{blocks, 1, 1}, Block: [3]int{32, 1, 1}, Cluster: cluster,
		Params: binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, buf), buf),
	}
	result, err := p.Run(t.Context(), memory, l, o)
	if err != nil {
		return nil, nil, err
	}
	return take(t, memory, buf, 32*blocks), result.Findings, nil
}

const (
	clusterSync = "barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;\n"
	clusterMine = "mov.u32 %r2, %cluster_ctarank;\n xor.b32 %r3, %r2, 1;\n mov.u32 %r4, s;\n mad.lo.u32 %r5, %r0, 4, %r4;\n" +
		"mapa.shared::cluster.u32 %r6, %r5, %r3;\n st.shared.u32 [%r5], %r63;\n"
)

// TestClusterMemory has each block read what the other block of its cluster wrote.
func TestClusterMemory(t *testing.T) {
	t.Parallel()
	seeds := uint64(6)
	if testing.Short() {
		seeds = 2
	}
	check := func(name, body string, want finding.Kind) {
		t.Helper()
		for seed := range seeds {
			out, found, err := runClusters(t, body, Options{Seed: seed, Checks: true}, 6, [3]int{2, 1, 1})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if want == "" {
				if peer := each(6*32, func(i uint32) uint32 { return i ^ 32 }); !slices.Equal(out, peer) || len(found) > 0 {
					t.Fatalf("%s, seed %d: output %v, findings %v", name, seed, out, found)
				}
				continue
			}
			if !slices.ContainsFunc(found, func(f finding.Finding) bool { return f.Kind == want }) {
				t.Fatalf("%s, seed %d: findings %v, want %s", name, seed, found, want)
			}
		}
	}
	const read = "ld.shared::cluster.u32 %r1, [%r6];\n"
	check("ordered", clusterMine+clusterSync+read+clusterSync, "")
	check("not ordered after the write", clusterMine+read+clusterSync, finding.Race)
	check("the other block may not have started", strings.TrimSuffix(clusterMine, "st.shared.u32 [%r5], %r63;\n")+"st.shared::cluster.u32 [%r6], %r63;\n"+clusterSync+"ld.shared.u32 %r1, [%r5];\n", finding.Race)
	check("the other block may have ended", clusterMine+clusterSync+read, finding.Race)
	check("a relaxed arrival", clusterMine+strings.Replace(clusterSync, "arrive.aligned", "arrive.relaxed.aligned", 1)+read+clusterSync, finding.Race)
	check("no such block", clusterMine+clusterSync+"mapa.shared::cluster.u32 %r6, %r5, 2;\n"+read+clusterSync, finding.OutOfBounds)
	check("a wait without an arrival", clusterMine+"barrier.cluster.wait.aligned;\n mov.u32 %r1, 0;", finding.BadBarrier)
	check("one block does not arrive", clusterMine+"mov.u32 %r1, 0;\n setp.eq.u32 %p1, %r2, 1;\n @%p1 bra LOOP;\n"+clusterSync+"bra END;\n"+
		"LOOP:\n ld.volatile.shared.u32 %r7, [%r5];\n setp.ne.u32 %p2, %r7, 4096;\n @%p2 bra LOOP;\nEND:", finding.Deadlock)
	// An mbarrier in the other block's memory, with release and acquire.
	check("an mbarrier", clusterMine+"mov.u32 %r8, bar;\n mapa.shared::cluster.u32 %r9, %r8, %r3;\n setp.eq.u32 %p1, %r0, 0;\n @%p1 mbarrier.init.shared::cta.b64 [%r8], 32;\n"+
		"fence.mbarrier_init.release.cluster;\n"+clusterSync+"st.shared::cluster.u32 [%r6], %r63;\n"+
		"mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r9];\nW:\n mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r8], 0;\n"+
		"@!%p2 bra W;\n ld.shared.u32 %r1, [%r5];\n"+clusterSync, "")
}

func TestClusterLaunches(t *testing.T) {
	t.Parallel()
	check := func(want string, blocks int, cluster [3]int) {
		t.Helper()
		if _, _, err := runClusters(t, "mov.u32 %r1, 0;", Options{}, blocks, cluster); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d blocks in clusters of %v: error %v does not contain %q", blocks, cluster, err, want)
		}
	}
	check("cannot be divided into clusters", 3, [3]int{2, 1, 1})
	check("clusters of 17 blocks", 17, [3]int{17, 1, 1})
	for _, cluster := range [][3]int{{}, {1, 1, 1}, {3, 1, 1}, {6, 1, 1}} {
		size := max(cluster[0], 1)
		out, found, err := runClusters(t, "mov.u32 %r1, %cluster_ctarank;\n mov.u32 %r2, %clusterid.x;\n mad.lo.u32 %r1, %r2, 16, %r1;", Options{Checks: true}, 6, cluster)
		want := each(6*32, func(i uint32) uint32 { return i/32/uint32(size)*16 + i/32%uint32(size) })
		if err != nil || len(found) > 0 || !slices.Equal(out, want) {
			t.Errorf("clusters of %v: %v, %v, %v", cluster, out, found, err)
		}
	}
}

// TestClusterCopies has the first block of each cluster copy to the second. The second block waits
// for the copy and signals the first. No cluster barrier precedes the end of the blocks.
func TestClusterCopies(t *testing.T) {
	t.Parallel()
	good := clusterMine + `
	mov.u32 %r8, bar;
	setp.eq.u32 %p1, %r2, 0;
	selp.u32 %r9, 32, 1, %p1;
	setp.eq.u32 %p2, %r0, 0;
	@%p2 mbarrier.init.shared::cta.b64 [%r8], %r9;
	fence.mbarrier_init.release.cluster;
	fence.proxy.async.shared::cta;
	mapa.shared::cluster.u32 %r10, %r8, %r3;
	barrier.cluster.arrive.aligned;
	barrier.cluster.wait.aligned;
	@!%p1 bra SECOND;
	mapa.shared::cluster.u32 %r11, %r4, 1;
	@%p2 COPY
	AWAIT
	bra END;
SECOND:
	@%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], 128;
	WAIT
	SIGNAL
END:
	ld.shared.u32 %r1, [%r5];`
	replace := func(await, wait, signal string) string {
		return strings.NewReplacer("AWAIT", await, "WAIT", wait, "SIGNAL", signal,
			"COPY", "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r11], [%r4], 128, [%r10];").Replace(good)
	}
	const (
		await  = "T:\n mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r8], 0;\n @!%p3 bra T;\n"
		wait   = "W:\n mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r8], 0;\n @!%p4 bra W;\n"
		signal = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r10];\n"
	)
	check := func(name, body string, want ...finding.Kind) {
		t.Helper()
		for seed := range uint64(6) {
			out, found, err := runClusters(t, body, Options{Seed: seed, Checks: true}, 4, [3]int{2, 1, 1})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if first := each(4*32, func(i uint32) uint32 { return i &^ 32 }); len(want) == 0 && (!slices.Equal(out, first) || len(found) > 0) {
				t.Fatalf("%s, seed %d: output %v, findings %v", name, seed, out, found)
			}
			for _, kind := range want {
				if !slices.ContainsFunc(found, func(f finding.Finding) bool { return f.Kind == kind && strings.Contains(f.Detail, "end") }) {
					t.Fatalf("%s, seed %d: findings %v, want %s", name, seed, found, kind)
				}
			}
		}
	}
	check("ordered", replace(await, wait, signal))
	check("no signal to the first block", replace("", wait, ""), finding.MissingWait)
	check("the first block does not wait for the signal", replace("", wait, signal), finding.MissingWait, finding.Race)
	check("the first block waits relaxed", replace(strings.Replace(await, "acquire", "relaxed", 1), wait, signal), finding.MissingWait)
	check("the second block does not wait for the copy", replace(await, "", signal), finding.MissingWait)
}
