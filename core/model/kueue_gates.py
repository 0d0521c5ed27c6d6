"""Feature gates of Kueue that have no effect here: a file that sets them is accepted all the same.

Gates that have to do with placement are in `core.model.gates`; there a name is either served or refused.
"""

# With this one on, Kueue waits for no pods whatever `waitForPodsReady` contains; a file that sets it means the same
# here.
DISABLE_PODS_READY = "DisableWaitForPodsReady"

# Kueue's gates of today, those of `core.model.gates` aside.
_OTHER = """
    AdmissionFairSharing AdmissionGatedBy AllAlpha AllBeta AssignQueueLabelsForPods CleanupProvisioningRequestsOnEviction
    ConcurrentAdmission CustomMetricLabels DeferRayServiceFinalizationForRedisCleanup DisableWaitForPodsReady
    FailureRecoveryPolicy FairSharingPreemptWithinNominal FairSharingPrioritizeNonBorrowing
    FastQuotaReleaseInPodIntegration FinishOrphanedWorkloads FlavorFungibility FlavorFungibilityPreserveScanProgress
    KueueDRAIntegrationConsumableCapacity KueueDRAIntegrationExtendedResource
    KueueDRAIntegrationPartitionableDevices KueueDRARejectWorkloadsWhenDRADisabled LWSImmutableGroupSize
    ManagedJobsNamespaceSelectorAlwaysRespected MetricForWorkloadCreationLatency MetricsForCohorts MultiKueue
    MultiKueueAdaptersForCustomJobs MultiKueueClusterProfile MultiKueueIncrementalDispatcherConfig
    MultiKueueIncrementalDispatcherRespectConfigOrder MultiKueueKubeConfigPathValidation MultiKueueManagerQuotaAutomation
    MultiKueueOrchestratedPreemption MultiKueueRemoteSpecSync PodIntegrationValidateGroupOwner
    PrioritizePreemptorWorkloads PriorityBoost PrioritySortingWithinCohort QuotaCheckStrategy
    RecomputeAssignmentUponPreemptionTargetsOverlap RejectUpdatesToCQWithInvalidOnFlavors RemoveFinalizersWithStrictPatch
    SchedulerLibraryIntegration SchedulingEquivalenceHashing ShortWorkloadNames SkipAncestorCheckForDeletedWorkloads
    SkipReassignmentForPodOwnedWorkloads SparkApplicationIntegration TLSOptions UnadmittedWorkloadsExplicitStatus
    UnadmittedWorkloadsObservability ValidateRayAndSparkJobUpdates VectorizedResourceRequests VisibilityOnDemand
    WorkloadIdentifierAnnotations WorkloadPriorityClassDefaulting WorkloadRequestUseMergePatch
    WorkloadValidateResourcesAreNonNegative WorkloadValidationForPodSetMetadata
"""
# Those that are new in 0.20 (docs/migration.md). What is newer still is not known, and draws a warning, too.
_NEWER = """
    AdmissionFairSharingAnchorAtQuotaReservation ConfigurablePreemptions DeploymentJobUIDLabel DynamicQuotaOrchestration
    FairSharingReevaluatePreemptionCandidates FairSharingRefill KueueDRAIntegrationDeviceTaints
    KueueDRAIntegrationPrioritizedList PodGroupSchedulingShapeOrdering PodIntegrationCountSucceededPodsAsReady
    RayServiceValidateUpgradeStrategy WaitForPodsReadyUnscheduledTimeout
"""
NEWER_GATES = frozenset(_NEWER.split())
OTHER_GATES = frozenset(_OTHER.split()) | NEWER_GATES

# Gates of older releases of Kueue: a file that was written for one of them may still name these.
_FORMER = """
    AdmissionCheckValidationRules ConfigurableResourceTransformations DynamicResourceAllocation ExposeFlavorsInLocalQueue
    FlavorFungibilityImplicitPreferenceDefault HierarchicalCohorts KeepQuotaForProvReqRetry LendingLimit LocalQueueDefaulting
    ManagedJobsNamespaceSelector MultiKueueAllowInsecureKubeconfigs MultiKueueBatchJobWithManagedBy MultiplePreemptions
    ObjectRetentionPolicies PropagateBatchJobLabelsToWorkload ProvisioningACC QueueVisibility SanitizePodSets
    WorkloadResourceRequestsSummary
"""
FORMER_GATES = frozenset(_FORMER.split())
