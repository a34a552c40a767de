"""The default detector: e-values on what a frozen model says, added up sample by sample.

One life of it. The model is frozen (`frozen_model`) and asked about every sample: how likely it is,
how clearly of one class, on which component it falls, where each feature lies in that component,
what its label is (`scores`). What it said of the first samples of a sub-task is the reference
(`reference`: `reference_scores` kept in order by `ranks`, `counts` of what can be counted: `cells`
on which samples fell, `label_errors`, `features`). While nothing changes, later samples rank evenly
among those of the reference. Against that there are bets (`bets`), whose gains are e-values: their
mean is at most 1 unless something has changed. Gains are added up by the Shiryaev-Roberts procedure
(`evidence`), whose threshold is the run time between false alarms. Samples that depend on each
other are thinned until they do not (`dependence`, `thinning`). `monitor` does all of that for a
batch in one compiled call, `online` for a sub-task that is young; `detector` decides what follows.
"""
