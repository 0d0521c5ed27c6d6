// Command controlplane is one binary holding the parts of a Kubernetes control
// plane that topogate's tests, demo and benchmarks run against. Its first
// argument chooses the part; everything after it goes to that part unchanged.
//
// One binary because the parts share almost all of their packages: linking
// them together takes a quarter of the disk and half of the build time.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

func main() {
	if len(os.Args) < 2 {
		fail("which part?")
	}
	part := os.Args[1]
	// The parts read os.Args themselves and name themselves after os.Args[0].
	os.Args = append([]string{filepath.Join(filepath.Dir(os.Args[0]), part)}, os.Args[2:]...)

	switch part {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		run(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		run(controllermanager.NewControllerManagerCommand())
	case "kube-scheduler":
		run(scheduler.NewSchedulerCommand())
	case "kubectl":
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	default:
		fail(fmt.Sprintf("unknown part %q", part))
	}
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

func fail(reason string) {
	parts := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"}
	fmt.Fprintf(os.Stderr, "controlplane: %s; the parts are %s\n", reason, strings.Join(parts, ", "))
	os.Exit(2)
}
