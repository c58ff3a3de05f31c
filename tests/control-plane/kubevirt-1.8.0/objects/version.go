package main

import (
	"k8s.io/apimachinery/pkg/runtime"

	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/rbac"
)

// Kinds that not every version has. virt-api does not become ready without them.
var more = []maker{
	components.NewVirtualMachineBackupCrd,
	components.NewVirtualMachineBackupTrackerCrd,
}

func controllerRights() []runtime.Object {
	return rbac.GetAllController(namespace, false)
}
