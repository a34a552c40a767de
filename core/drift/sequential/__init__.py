"""The default detector: e-values on what a frozen model says, added up sample by sample.

1. The model is frozen (`frozen_model`) and asked about every sample: how likely the sample is, how
   clearly it is of one class, on which component it falls, where each feature lies in that
   component, and what its label is (`scores`).
2. The scores of the first samples of a sub-task are the *reference* (`reference`): `ranks` keeps
   `reference_scores` in order, and `counts` counts the `cells` on which samples fell,
   `label_errors` and `features`.
3. While nothing changes, later samples rank evenly among the reference. `bets` are made against
   that. A bet pays an e-value, whose mean is at most 1 while nothing changes.
4. The Shiryaev-Roberts procedure (`evidence`) adds up the e-values. Its threshold follows from the
   expected run time between false alarms.
5. Samples that depend on each other are thinned until they do not (`dependence`, `thinning`).
6. `monitor` does all of this for a batch in one compiled call, `online` does it for a young
   sub-task, and `detector` decides what follows.
"""
