package main

import (
	"k8s.io/apimachinery/pkg/runtime"

	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/rbac"
)

// Kinds that not every version has.
var more []maker

func controllerRights() []runtime.Object {
	return rbac.GetAllController(namespace)
}
