// Prints what KubeVirt's operator would put into a cluster, as one JSON document, so that no copy of it has to be kept:
//
//	objects --url https://127.0.0.1:8443 --port 8443 --ca ca.crt
//
// "crds" come first, "access" are RBAC, admission policies and the priority class, "hooks" are webhooks and APIServices that reach
// virt-api at --url. Each version's folder links to this file and has its own version.go.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"

	admission "k8s.io/api/admissionregistration/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/rbac"
)

const (
	namespace = "kubevirt"
	policies  = "admissionregistration.k8s.io/v1"
)

type maker = func() (*apiextensions.CustomResourceDefinition, error)

// The kinds that every version has.
var common = []maker{
	components.NewKubeVirtCrd,
	components.NewMigrationPolicyCrd,
	components.NewPresetCrd,
	components.NewReplicaSetCrd,
	components.NewVirtualMachineCloneCrd,
	components.NewVirtualMachineClusterInstancetypeCrd,
	components.NewVirtualMachineClusterPreferenceCrd,
	components.NewVirtualMachineCrd,
	components.NewVirtualMachineExportCrd,
	components.NewVirtualMachineInstanceCrd,
	components.NewVirtualMachineInstanceMigrationCrd,
	components.NewVirtualMachineInstancetypeCrd,
	components.NewVirtualMachinePoolCrd,
	components.NewVirtualMachinePreferenceCrd,
	components.NewVirtualMachineRestoreCrd,
	components.NewVirtualMachineSnapshotContentCrd,
	components.NewVirtualMachineSnapshotCrd,
}

type cluster struct {
	CRDs   []any `json:"crds"`
	Access []any `json:"access"`
	Hooks  []any `json:"hooks"`
}

func main() {
	url := flag.String("url", "", "how the API server reaches virt-api")
	port := flag.Int("port", 0, "virt-api's port, for the aggregated API")
	file := flag.String("ca", "", "file with the authority that signed virt-api's certificate")
	flag.Parse()
	if err := run(*url, int32(*port), *file); err != nil {
		fmt.Fprintln(os.Stderr, "objects:", err)
		os.Exit(1)
	}
}

func run(url string, port int32, file string) error {
	ca, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var all cluster
	for _, make := range append(common, more...) {
		crd, err := make()
		if err != nil {
			return err
		}
		// The operator sends it with a typed client, which fills these in.
		crd.APIVersion, crd.Kind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
		all.CRDs = append(all.CRDs, crd)
	}
	for _, o := range rbac.GetAllCluster() {
		all.Access = append(all.Access, o)
	}
	for _, o := range rbac.GetAllApiServer(namespace) {
		all.Access = append(all.Access, o)
	}
	for _, o := range controllerRights() {
		all.Access = append(all.Access, o)
	}
	for _, o := range rbac.GetAllHandler(namespace) {
		all.Access = append(all.Access, o)
	}
	policy := components.NewHandlerV1ValidatingAdmissionPolicy("system:serviceaccount:" + namespace + ":kubevirt-handler")
	binding := components.NewHandlerV1ValidatingAdmissionPolicyBinding()
	policy.APIVersion, binding.APIVersion = policies, policies
	all.Access = append(all.Access, components.NewKubeVirtPriorityClassCR(), policy, binding)

	outside := func(client *admission.WebhookClientConfig) {
		at := url + *client.Service.Path
		client.Service, client.URL, client.CABundle = nil, &at, ca
	}
	validating := components.NewVirtAPIValidatingWebhookConfiguration(namespace)
	for i := range validating.Webhooks {
		outside(&validating.Webhooks[i].ClientConfig)
	}
	mutating := components.NewVirtAPIMutatingWebhookConfiguration(namespace)
	for i := range mutating.Webhooks {
		outside(&mutating.Webhooks[i].ClientConfig)
	}
	all.Hooks = append(all.Hooks, validating, mutating)
	for _, service := range components.NewVirtAPIAPIServices(namespace) {
		service.Spec.CABundle, service.Spec.Service.Port = ca, &port
		all.Hooks = append(all.Hooks, service)
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}
