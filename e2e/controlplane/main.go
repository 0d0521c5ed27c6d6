// Command controlplane is one binary holding the parts of a Kubernetes control
// plane that topogate's tests, demo and benchmarks run against. The name it
// is called by, or else its first argument, chooses the part; everything after it
// goes to that part unchanged.
//
// One binary because the parts share almost all of their packages: linking
// them together takes a quarter of the disk and half of the build time.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

var parts = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          func() { run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() { run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() { run(scheduler.NewSchedulerCommand()) },
	"kubectl":                 runKubectl,
}

func main() {
	askForHugePages()
	// Called through a symlink named like a part, it is that part.
	if start, ok := parts[filepath.Base(os.Args[0])]; ok {
		start()
		return
	}
	if len(os.Args) < 2 {
		fail("which part?")
	}
	start, ok := parts[os.Args[1]]
	if !ok {
		fail(fmt.Sprintf("unknown part %q", os.Args[1]))
	}
	// The parts read os.Args themselves and name themselves after os.Args[0].
	os.Args = append([]string{filepath.Join(filepath.Dir(os.Args[0]), os.Args[1])}, os.Args[2:]...)
	start()
}

// askForHugePages lets the kernel back the first GiB of the heap, which is
// reserved and given back untouched, with pages of 2 MB: on a virtual machine
// each small page costs microseconds. Where that is refused all is as without.
func askForHugePages() {
	heap := make([]byte, 1<<30)
	_ = syscall.Madvise(heap, syscall.MADV_HUGEPAGE)
	heap = nil
	runtime.GC()
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

func runKubectl() {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}

func fail(reason string) {
	names := slices.Sorted(maps.Keys(parts))
	fmt.Fprintf(os.Stderr, "controlplane: %s; the parts are %s\n", reason, strings.Join(names, ", "))
	os.Exit(2)
}
