package render

//lint:file-ignore SA1019 these are the fields that kustomize calls deprecated, which people's files still have

import "sigs.k8s.io/kustomize/api/types"

// modernize moves what deprecated fields say to those that took their place,
// as "kustomize edit fix" does; kustomize itself would print a warning at every
// build. Patches are returned, because only their files tell what they are.
func modernize(k *types.Kustomization) (mergePatches []string, jsonPatches []types.Patch) {
	k.Resources, k.Bases = append(k.Resources, k.Bases...), nil
	if len(k.CommonLabels) > 0 {
		k.Labels = append([]types.Label{{Pairs: k.CommonLabels, IncludeSelectors: true}}, k.Labels...)
		k.CommonLabels = nil
	}
	for _, p := range k.PatchesStrategicMerge {
		mergePatches = append(mergePatches, string(p))
	}
	jsonPatches = k.PatchesJson6902
	k.PatchesStrategicMerge, k.PatchesJson6902 = nil, nil
	return mergePatches, jsonPatches
}
