# Written by tools/compile_proto.py from proto/caffe.proto; not for editing.
"""Caffe's message types and enums. Enums are ints, and message fields are changed in place."""

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer as Messages
from google.protobuf.internal.containers import RepeatedScalarFieldContainer as Scalars
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message

DESCRIPTOR: FileDescriptor

Phase: EnumTypeWrapper
TRAIN: int
TEST: int
Type: EnumTypeWrapper
DOUBLE: int
FLOAT: int
FLOAT16: int
INT: int
UINT: int
BOOL: int
BFLOAT16: int
Packing: EnumTypeWrapper
NCHW: int
NHWC: int
DatumTypeInfo: EnumTypeWrapper
DatumTypeInfo_DATUM: int
DatumTypeInfo_ANNOTATED_DATUM: int
class BlobShape(Message):
    @property
    def dim(self) -> Scalars[int]: ...
    def __init__(
        self,
        *,
        dim: Iterable[int] | None = ...,
    ) -> None: ...

class BlobProto(Message):
    @property
    def shape(self) -> BlobShape: ...
    @property
    def data(self) -> Scalars[float]: ...
    @property
    def diff(self) -> Scalars[float]: ...
    @property
    def double_data(self) -> Scalars[float]: ...
    @property
    def double_diff(self) -> Scalars[float]: ...
    num: int
    channels: int
    height: int
    width: int
    raw_data_type: int
    raw_diff_type: int
    raw_data: bytes
    raw_diff: bytes
    def __init__(
        self,
        *,
        shape: BlobShape | Mapping[str, Any] | None = ...,
        data: Iterable[float] | None = ...,
        diff: Iterable[float] | None = ...,
        double_data: Iterable[float] | None = ...,
        double_diff: Iterable[float] | None = ...,
        num: int | None = ...,
        channels: int | None = ...,
        height: int | None = ...,
        width: int | None = ...,
        raw_data_type: int | str | None = ...,
        raw_diff_type: int | str | None = ...,
        raw_data: bytes | None = ...,
        raw_diff: bytes | None = ...,
    ) -> None: ...

class BlobProtoVector(Message):
    @property
    def blobs(self) -> Messages[BlobProto]: ...
    def __init__(
        self,
        *,
        blobs: Iterable[BlobProto | Mapping[str, Any]] | None = ...,
    ) -> None: ...

class Datum(Message):
    channels: int
    height: int
    width: int
    data: bytes
    label: int
    @property
    def float_data(self) -> Scalars[float]: ...
    encoded: bool
    record_id: int
    def __init__(
        self,
        *,
        channels: int | None = ...,
        height: int | None = ...,
        width: int | None = ...,
        data: bytes | None = ...,
        label: int | None = ...,
        float_data: Iterable[float] | None = ...,
        encoded: bool | None = ...,
        record_id: int | None = ...,
    ) -> None: ...

class FillerParameter(Message):
    VarianceNorm: EnumTypeWrapper
    FAN_IN: int
    FAN_OUT: int
    AVERAGE: int
    type: str
    value: float
    min: float
    max: float
    mean: float
    std: float
    sparse: int
    variance_norm: int
    scale: float
    alpha: float
    def __init__(
        self,
        *,
        type: str | None = ...,
        value: float | None = ...,
        min: float | None = ...,
        max: float | None = ...,
        mean: float | None = ...,
        std: float | None = ...,
        sparse: int | None = ...,
        variance_norm: int | str | None = ...,
        scale: float | None = ...,
        alpha: float | None = ...,
    ) -> None: ...

class NetParameter(Message):
    name: str
    @property
    def input(self) -> Scalars[str]: ...
    @property
    def input_shape(self) -> Messages[BlobShape]: ...
    @property
    def input_dim(self) -> Scalars[int]: ...
    force_backward: bool
    @property
    def state(self) -> NetState: ...
    debug_info: bool
    @property
    def layer(self) -> Messages[LayerParameter]: ...
    @property
    def layers(self) -> Messages[V1LayerParameter]: ...
    default_forward_type: int
    default_backward_type: int
    default_forward_math: int
    default_backward_math: int
    global_grad_scale: float
    global_grad_scale_adaptive: bool
    default_conv_algos_override: str
    reduce_buckets: int
    default_cudnn_math_override: int
    eltwise_mem_sharing: bool
    @property
    def compile_net_state(self) -> CompileNetState: ...
    engine: str
    bn_stats_batch_size: int
    @property
    def multinode(self) -> MultinodeParameter: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        input: Iterable[str] | None = ...,
        input_shape: Iterable[BlobShape | Mapping[str, Any]] | None = ...,
        input_dim: Iterable[int] | None = ...,
        force_backward: bool | None = ...,
        state: NetState | Mapping[str, Any] | None = ...,
        debug_info: bool | None = ...,
        layer: Iterable[LayerParameter | Mapping[str, Any]] | None = ...,
        layers: Iterable[V1LayerParameter | Mapping[str, Any]] | None = ...,
        default_forward_type: int | str | None = ...,
        default_backward_type: int | str | None = ...,
        default_forward_math: int | str | None = ...,
        default_backward_math: int | str | None = ...,
        global_grad_scale: float | None = ...,
        global_grad_scale_adaptive: bool | None = ...,
        default_conv_algos_override: str | None = ...,
        reduce_buckets: int | None = ...,
        default_cudnn_math_override: int | None = ...,
        eltwise_mem_sharing: bool | None = ...,
        compile_net_state: CompileNetState | Mapping[str, Any] | None = ...,
        engine: str | None = ...,
        bn_stats_batch_size: int | None = ...,
        multinode: MultinodeParameter | Mapping[str, Any] | None = ...,
    ) -> None: ...

class NetState(Message):
    phase: int
    level: int
    @property
    def stage(self) -> Scalars[str]: ...
    def __init__(
        self,
        *,
        phase: int | str | None = ...,
        level: int | None = ...,
        stage: Iterable[str] | None = ...,
    ) -> None: ...

class NetStateRule(Message):
    phase: int
    min_level: int
    max_level: int
    @property
    def stage(self) -> Scalars[str]: ...
    @property
    def not_stage(self) -> Scalars[str]: ...
    def __init__(
        self,
        *,
        phase: int | str | None = ...,
        min_level: int | None = ...,
        max_level: int | None = ...,
        stage: Iterable[str] | None = ...,
        not_stage: Iterable[str] | None = ...,
    ) -> None: ...

class SolverParameter(Message):
    SnapshotFormat: EnumTypeWrapper
    HDF5: int
    BINARYPROTO: int
    SolverMode: EnumTypeWrapper
    CPU: int
    GPU: int
    SolverType: EnumTypeWrapper
    SGD: int
    NESTEROV: int
    ADAGRAD: int
    RMSPROP: int
    ADADELTA: int
    ADAM: int
    SAG: int
    net: str
    @property
    def net_param(self) -> NetParameter: ...
    train_net: str
    @property
    def test_net(self) -> Scalars[str]: ...
    @property
    def train_net_param(self) -> NetParameter: ...
    @property
    def test_net_param(self) -> Messages[NetParameter]: ...
    @property
    def train_state(self) -> NetState: ...
    @property
    def test_state(self) -> Messages[NetState]: ...
    @property
    def test_iter(self) -> Scalars[int]: ...
    test_interval: int
    test_compute_loss: bool
    test_initialization: bool
    base_lr: float
    display: int
    average_loss: int
    max_iter: int
    iter_size: int
    lr_policy: str
    gamma: float
    power: float
    momentum: float
    weight_decay: float
    regularization_type: str
    stepsize: int
    @property
    def stepvalue(self) -> Scalars[int]: ...
    clip_gradients: float
    snapshot: int
    snapshot_prefix: str
    snapshot_diff: bool
    snapshot_format: int
    solver_mode: int
    device_id: int
    random_seed: int
    type: str
    delta: float
    momentum2: float
    rms_decay: float
    debug_info: bool
    snapshot_after_train: bool
    solver_type: int
    layer_wise_reduce: bool
    @property
    def weights(self) -> Scalars[str]: ...
    eval_type: str
    ap_version: str
    show_per_class_result: bool
    @property
    def plateau_winsize(self) -> Scalars[int]: ...
    rampup_interval: int
    rampup_lr: float
    min_lr: float
    momentum_policy: str
    max_momentum: float
    momentum_power: float
    larc: bool
    larc_policy: str
    larc_eta: float
    larc_turbo: bool
    weight_decay_policy: str
    weight_decay_power: float
    max_weight_decay: float
    solver_data_type: int
    store_blobs_in_old_format: bool
    test_and_snapshot_last_epochs: int
    @property
    def stagelr(self) -> Scalars[float]: ...
    @property
    def stageiter(self) -> Scalars[int]: ...
    disabled_update: bool
    engine: str
    warmup_iter: int
    warmup_start_lr: float
    local_lr_auto: bool
    local_gw_ratio: float
    test_offset: int
    decoupled_decay: bool
    def __init__(
        self,
        *,
        net: str | None = ...,
        net_param: NetParameter | Mapping[str, Any] | None = ...,
        train_net: str | None = ...,
        test_net: Iterable[str] | None = ...,
        train_net_param: NetParameter | Mapping[str, Any] | None = ...,
        test_net_param: Iterable[NetParameter | Mapping[str, Any]] | None = ...,
        train_state: NetState | Mapping[str, Any] | None = ...,
        test_state: Iterable[NetState | Mapping[str, Any]] | None = ...,
        test_iter: Iterable[int] | None = ...,
        test_interval: int | None = ...,
        test_compute_loss: bool | None = ...,
        test_initialization: bool | None = ...,
        base_lr: float | None = ...,
        display: int | None = ...,
        average_loss: int | None = ...,
        max_iter: int | None = ...,
        iter_size: int | None = ...,
        lr_policy: str | None = ...,
        gamma: float | None = ...,
        power: float | None = ...,
        momentum: float | None = ...,
        weight_decay: float | None = ...,
        regularization_type: str | None = ...,
        stepsize: int | None = ...,
        stepvalue: Iterable[int] | None = ...,
        clip_gradients: float | None = ...,
        snapshot: int | None = ...,
        snapshot_prefix: str | None = ...,
        snapshot_diff: bool | None = ...,
        snapshot_format: int | str | None = ...,
        solver_mode: int | str | None = ...,
        device_id: int | None = ...,
        random_seed: int | None = ...,
        type: str | None = ...,
        delta: float | None = ...,
        momentum2: float | None = ...,
        rms_decay: float | None = ...,
        debug_info: bool | None = ...,
        snapshot_after_train: bool | None = ...,
        solver_type: int | str | None = ...,
        layer_wise_reduce: bool | None = ...,
        weights: Iterable[str] | None = ...,
        eval_type: str | None = ...,
        ap_version: str | None = ...,
        show_per_class_result: bool | None = ...,
        plateau_winsize: Iterable[int] | None = ...,
        rampup_interval: int | None = ...,
        rampup_lr: float | None = ...,
        min_lr: float | None = ...,
        momentum_policy: str | None = ...,
        max_momentum: float | None = ...,
        momentum_power: float | None = ...,
        larc: bool | None = ...,
        larc_policy: str | None = ...,
        larc_eta: float | None = ...,
        larc_turbo: bool | None = ...,
        weight_decay_policy: str | None = ...,
        weight_decay_power: float | None = ...,
        max_weight_decay: float | None = ...,
        solver_data_type: int | str | None = ...,
        store_blobs_in_old_format: bool | None = ...,
        test_and_snapshot_last_epochs: int | None = ...,
        stagelr: Iterable[float] | None = ...,
        stageiter: Iterable[int] | None = ...,
        disabled_update: bool | None = ...,
        engine: str | None = ...,
        warmup_iter: int | None = ...,
        warmup_start_lr: float | None = ...,
        local_lr_auto: bool | None = ...,
        local_gw_ratio: float | None = ...,
        test_offset: int | None = ...,
        decoupled_decay: bool | None = ...,
    ) -> None: ...

class SolverState(Message):
    iter: int
    learned_net: str
    @property
    def history(self) -> Messages[BlobProto]: ...
    current_step: int
    minimum_loss: float
    iter_last_event: int
    fire_extra: bytes
    def __init__(
        self,
        *,
        iter: int | None = ...,
        learned_net: str | None = ...,
        history: Iterable[BlobProto | Mapping[str, Any]] | None = ...,
        current_step: int | None = ...,
        minimum_loss: float | None = ...,
        iter_last_event: int | None = ...,
        fire_extra: bytes | None = ...,
    ) -> None: ...

class ParamSpec(Message):
    DimCheckMode: EnumTypeWrapper
    STRICT: int
    PERMISSIVE: int
    name: str
    share_mode: int
    lr_mult: float
    decay_mult: float
    def __init__(
        self,
        *,
        name: str | None = ...,
        share_mode: int | str | None = ...,
        lr_mult: float | None = ...,
        decay_mult: float | None = ...,
    ) -> None: ...

class LayerParameter(Message):
    name: str
    type: str
    @property
    def bottom(self) -> Scalars[str]: ...
    @property
    def top(self) -> Scalars[str]: ...
    phase: int
    @property
    def loss_weight(self) -> Scalars[float]: ...
    @property
    def param(self) -> Messages[ParamSpec]: ...
    @property
    def blobs(self) -> Messages[BlobProto]: ...
    @property
    def propagate_down(self) -> Scalars[bool]: ...
    @property
    def include(self) -> Messages[NetStateRule]: ...
    @property
    def exclude(self) -> Messages[NetStateRule]: ...
    @property
    def transform_param(self) -> TransformationParameter: ...
    @property
    def loss_param(self) -> LossParameter: ...
    @property
    def accuracy_param(self) -> AccuracyParameter: ...
    @property
    def argmax_param(self) -> ArgMaxParameter: ...
    @property
    def batch_norm_param(self) -> BatchNormParameter: ...
    @property
    def bias_param(self) -> BiasParameter: ...
    @property
    def clip_param(self) -> ClipParameter: ...
    @property
    def concat_param(self) -> ConcatParameter: ...
    @property
    def contrastive_loss_param(self) -> ContrastiveLossParameter: ...
    @property
    def convolution_param(self) -> ConvolutionParameter: ...
    @property
    def crop_param(self) -> CropParameter: ...
    @property
    def data_param(self) -> DataParameter: ...
    @property
    def dropout_param(self) -> DropoutParameter: ...
    @property
    def dummy_data_param(self) -> DummyDataParameter: ...
    @property
    def eltwise_param(self) -> EltwiseParameter: ...
    @property
    def elu_param(self) -> ELUParameter: ...
    @property
    def embed_param(self) -> EmbedParameter: ...
    @property
    def exp_param(self) -> ExpParameter: ...
    @property
    def flatten_param(self) -> FlattenParameter: ...
    @property
    def hdf5_data_param(self) -> HDF5DataParameter: ...
    @property
    def hdf5_output_param(self) -> HDF5OutputParameter: ...
    @property
    def hinge_loss_param(self) -> HingeLossParameter: ...
    @property
    def image_data_param(self) -> ImageDataParameter: ...
    @property
    def infogain_loss_param(self) -> InfogainLossParameter: ...
    @property
    def inner_product_param(self) -> InnerProductParameter: ...
    @property
    def input_param(self) -> InputParameter: ...
    @property
    def log_param(self) -> LogParameter: ...
    @property
    def lrn_param(self) -> LRNParameter: ...
    @property
    def memory_data_param(self) -> MemoryDataParameter: ...
    @property
    def mvn_param(self) -> MVNParameter: ...
    @property
    def parameter_param(self) -> ParameterParameter: ...
    @property
    def pooling_param(self) -> PoolingParameter: ...
    @property
    def power_param(self) -> PowerParameter: ...
    @property
    def prelu_param(self) -> PReLUParameter: ...
    @property
    def python_param(self) -> PythonParameter: ...
    @property
    def recurrent_param(self) -> RecurrentParameter: ...
    @property
    def reduction_param(self) -> ReductionParameter: ...
    @property
    def relu_param(self) -> ReLUParameter: ...
    @property
    def reshape_param(self) -> ReshapeParameter: ...
    @property
    def scale_param(self) -> ScaleParameter: ...
    @property
    def sigmoid_param(self) -> SigmoidParameter: ...
    @property
    def softmax_param(self) -> SoftmaxParameter: ...
    @property
    def spp_param(self) -> SPPParameter: ...
    @property
    def slice_param(self) -> SliceParameter: ...
    @property
    def swish_param(self) -> SwishParameter: ...
    @property
    def tanh_param(self) -> TanHParameter: ...
    @property
    def threshold_param(self) -> ThresholdParameter: ...
    @property
    def tile_param(self) -> TileParameter: ...
    @property
    def window_data_param(self) -> WindowDataParameter: ...
    @property
    def annotated_data_param(self) -> AnnotatedDataParameter: ...
    @property
    def detection_evaluate_param(self) -> DetectionEvaluateParameter: ...
    @property
    def detection_output_param(self) -> DetectionOutputParameter: ...
    @property
    def multibox_loss_param(self) -> MultiBoxLossParameter: ...
    @property
    def norm_param(self) -> NormalizeParameter: ...
    @property
    def permute_param(self) -> PermuteParameter: ...
    @property
    def prior_box_param(self) -> PriorBoxParameter: ...
    @property
    def video_data_param(self) -> VideoDataParameter: ...
    forward_type: int
    backward_type: int
    forward_math: int
    backward_math: int
    debug: bool
    cudnn_math_override: int
    @property
    def trt_param(self) -> TRTParameter: ...
    @property
    def detectnet_groundtruth_param(self) -> DetectNetGroundTruthParameter: ...
    @property
    def detectnet_augmentation_param(self) -> DetectNetAugmentationParameter: ...
    @property
    def box_annotator_ohem_param(self) -> BoxAnnotatorOHEMParameter: ...
    @property
    def psroi_pooling_param(self) -> PSROIPoolingParameter: ...
    @property
    def roi_pooling_param(self) -> ROIPoolingParameter: ...
    @property
    def smooth_l1_loss_param(self) -> SmoothL1LossParameter: ...
    @property
    def split_param(self) -> SplitParameter: ...
    @property
    def spatial_dropout_param(self) -> SpatialDropoutParameter: ...
    engine: str
    @property
    def multinode(self) -> MultinodeLayerParameter: ...
    @property
    def mn_activation_param(self) -> MnActivationParameter: ...
    @property
    def mn_grad_compress_param(self) -> MnParamGradCompressParameter: ...
    @property
    def quantization_param(self) -> QuantizationParameter: ...
    @property
    def reorg_param(self) -> ReorgParameter: ...
    @property
    def region_loss_param(self) -> RegionLossParameter: ...
    @property
    def eval_detection_param(self) -> EvalDetectionParameter: ...
    @property
    def bn_param(self) -> BNParameter: ...
    @property
    def dense_image_data_param(self) -> ImageDataParameter: ...
    @property
    def interp_param(self) -> InterpParameter: ...
    @property
    def shuffle_channel_param(self) -> ShuffleChannelParameter: ...
    @property
    def upsample_param(self) -> UpsampleParameter: ...
    @property
    def unpooling_param(self) -> UnpoolingParameter: ...
    @property
    def flip_param(self) -> FlipParameter: ...
    @property
    def lstm_param(self) -> LSTMParameter: ...
    @property
    def proposal_param(self) -> ProposalParameter: ...
    @property
    def warp_ctc_param(self) -> WarpCTCParameter: ...
    @property
    def ctc_loss_param(self) -> CTCLossParameter: ...
    @property
    def ctc_decoder_param(self) -> CTCDecoderParameter: ...
    @property
    def continuation_indicator_param(self) -> ContinuationIndicatorParameter: ...
    @property
    def center_loss_param(self) -> CenterLossParameter: ...
    @property
    def group_norm_param(self) -> GroupNormParameter: ...
    @property
    def l1_loss_param(self) -> L1LossParameter: ...
    @property
    def layer_norm_param(self) -> LayerNormParameter: ...
    @property
    def matmul_param(self) -> MatMulParameter: ...
    @property
    def roi_align_param(self) -> ROIAlignParameter: ...
    @property
    def softmax_focal_loss_param(self) -> SoftmaxFocalLossParameter: ...
    @property
    def triplet_loss_param(self) -> TripletLossParameter: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        type: str | None = ...,
        bottom: Iterable[str] | None = ...,
        top: Iterable[str] | None = ...,
        phase: int | str | None = ...,
        loss_weight: Iterable[float] | None = ...,
        param: Iterable[ParamSpec | Mapping[str, Any]] | None = ...,
        blobs: Iterable[BlobProto | Mapping[str, Any]] | None = ...,
        propagate_down: Iterable[bool] | None = ...,
        include: Iterable[NetStateRule | Mapping[str, Any]] | None = ...,
        exclude: Iterable[NetStateRule | Mapping[str, Any]] | None = ...,
        transform_param: TransformationParameter | Mapping[str, Any] | None = ...,
        loss_param: LossParameter | Mapping[str, Any] | None = ...,
        accuracy_param: AccuracyParameter | Mapping[str, Any] | None = ...,
        argmax_param: ArgMaxParameter | Mapping[str, Any] | None = ...,
        batch_norm_param: BatchNormParameter | Mapping[str, Any] | None = ...,
        bias_param: BiasParameter | Mapping[str, Any] | None = ...,
        clip_param: ClipParameter | Mapping[str, Any] | None = ...,
        concat_param: ConcatParameter | Mapping[str, Any] | None = ...,
        contrastive_loss_param: ContrastiveLossParameter | Mapping[str, Any] | None = ...,
        convolution_param: ConvolutionParameter | Mapping[str, Any] | None = ...,
        crop_param: CropParameter | Mapping[str, Any] | None = ...,
        data_param: DataParameter | Mapping[str, Any] | None = ...,
        dropout_param: DropoutParameter | Mapping[str, Any] | None = ...,
        dummy_data_param: DummyDataParameter | Mapping[str, Any] | None = ...,
        eltwise_param: EltwiseParameter | Mapping[str, Any] | None = ...,
        elu_param: ELUParameter | Mapping[str, Any] | None = ...,
        embed_param: EmbedParameter | Mapping[str, Any] | None = ...,
        exp_param: ExpParameter | Mapping[str, Any] | None = ...,
        flatten_param: FlattenParameter | Mapping[str, Any] | None = ...,
        hdf5_data_param: HDF5DataParameter | Mapping[str, Any] | None = ...,
        hdf5_output_param: HDF5OutputParameter | Mapping[str, Any] | None = ...,
        hinge_loss_param: HingeLossParameter | Mapping[str, Any] | None = ...,
        image_data_param: ImageDataParameter | Mapping[str, Any] | None = ...,
        infogain_loss_param: InfogainLossParameter | Mapping[str, Any] | None = ...,
        inner_product_param: InnerProductParameter | Mapping[str, Any] | None = ...,
        input_param: InputParameter | Mapping[str, Any] | None = ...,
        log_param: LogParameter | Mapping[str, Any] | None = ...,
        lrn_param: LRNParameter | Mapping[str, Any] | None = ...,
        memory_data_param: MemoryDataParameter | Mapping[str, Any] | None = ...,
        mvn_param: MVNParameter | Mapping[str, Any] | None = ...,
        parameter_param: ParameterParameter | Mapping[str, Any] | None = ...,
        pooling_param: PoolingParameter | Mapping[str, Any] | None = ...,
        power_param: PowerParameter | Mapping[str, Any] | None = ...,
        prelu_param: PReLUParameter | Mapping[str, Any] | None = ...,
        python_param: PythonParameter | Mapping[str, Any] | None = ...,
        recurrent_param: RecurrentParameter | Mapping[str, Any] | None = ...,
        reduction_param: ReductionParameter | Mapping[str, Any] | None = ...,
        relu_param: ReLUParameter | Mapping[str, Any] | None = ...,
        reshape_param: ReshapeParameter | Mapping[str, Any] | None = ...,
        scale_param: ScaleParameter | Mapping[str, Any] | None = ...,
        sigmoid_param: SigmoidParameter | Mapping[str, Any] | None = ...,
        softmax_param: SoftmaxParameter | Mapping[str, Any] | None = ...,
        spp_param: SPPParameter | Mapping[str, Any] | None = ...,
        slice_param: SliceParameter | Mapping[str, Any] | None = ...,
        swish_param: SwishParameter | Mapping[str, Any] | None = ...,
        tanh_param: TanHParameter | Mapping[str, Any] | None = ...,
        threshold_param: ThresholdParameter | Mapping[str, Any] | None = ...,
        tile_param: TileParameter | Mapping[str, Any] | None = ...,
        window_data_param: WindowDataParameter | Mapping[str, Any] | None = ...,
        annotated_data_param: AnnotatedDataParameter | Mapping[str, Any] | None = ...,
        detection_evaluate_param: DetectionEvaluateParameter | Mapping[str, Any] | None = ...,
        detection_output_param: DetectionOutputParameter | Mapping[str, Any] | None = ...,
        multibox_loss_param: MultiBoxLossParameter | Mapping[str, Any] | None = ...,
        norm_param: NormalizeParameter | Mapping[str, Any] | None = ...,
        permute_param: PermuteParameter | Mapping[str, Any] | None = ...,
        prior_box_param: PriorBoxParameter | Mapping[str, Any] | None = ...,
        video_data_param: VideoDataParameter | Mapping[str, Any] | None = ...,
        forward_type: int | str | None = ...,
        backward_type: int | str | None = ...,
        forward_math: int | str | None = ...,
        backward_math: int | str | None = ...,
        debug: bool | None = ...,
        cudnn_math_override: int | None = ...,
        trt_param: TRTParameter | Mapping[str, Any] | None = ...,
        detectnet_groundtruth_param: DetectNetGroundTruthParameter | Mapping[str, Any] | None = ...,
        detectnet_augmentation_param: DetectNetAugmentationParameter | Mapping[str, Any] | None = ...,
        box_annotator_ohem_param: BoxAnnotatorOHEMParameter | Mapping[str, Any] | None = ...,
        psroi_pooling_param: PSROIPoolingParameter | Mapping[str, Any] | None = ...,
        roi_pooling_param: ROIPoolingParameter | Mapping[str, Any] | None = ...,
        smooth_l1_loss_param: SmoothL1LossParameter | Mapping[str, Any] | None = ...,
        split_param: SplitParameter | Mapping[str, Any] | None = ...,
        spatial_dropout_param: SpatialDropoutParameter | Mapping[str, Any] | None = ...,
        engine: str | None = ...,
        multinode: MultinodeLayerParameter | Mapping[str, Any] | None = ...,
        mn_activation_param: MnActivationParameter | Mapping[str, Any] | None = ...,
        mn_grad_compress_param: MnParamGradCompressParameter | Mapping[str, Any] | None = ...,
        quantization_param: QuantizationParameter | Mapping[str, Any] | None = ...,
        reorg_param: ReorgParameter | Mapping[str, Any] | None = ...,
        region_loss_param: RegionLossParameter | Mapping[str, Any] | None = ...,
        eval_detection_param: EvalDetectionParameter | Mapping[str, Any] | None = ...,
        bn_param: BNParameter | Mapping[str, Any] | None = ...,
        dense_image_data_param: ImageDataParameter | Mapping[str, Any] | None = ...,
        interp_param: InterpParameter | Mapping[str, Any] | None = ...,
        shuffle_channel_param: ShuffleChannelParameter | Mapping[str, Any] | None = ...,
        upsample_param: UpsampleParameter | Mapping[str, Any] | None = ...,
        unpooling_param: UnpoolingParameter | Mapping[str, Any] | None = ...,
        flip_param: FlipParameter | Mapping[str, Any] | None = ...,
        lstm_param: LSTMParameter | Mapping[str, Any] | None = ...,
        proposal_param: ProposalParameter | Mapping[str, Any] | None = ...,
        warp_ctc_param: WarpCTCParameter | Mapping[str, Any] | None = ...,
        ctc_loss_param: CTCLossParameter | Mapping[str, Any] | None = ...,
        ctc_decoder_param: CTCDecoderParameter | Mapping[str, Any] | None = ...,
        continuation_indicator_param: ContinuationIndicatorParameter | Mapping[str, Any] | None = ...,
        center_loss_param: CenterLossParameter | Mapping[str, Any] | None = ...,
        group_norm_param: GroupNormParameter | Mapping[str, Any] | None = ...,
        l1_loss_param: L1LossParameter | Mapping[str, Any] | None = ...,
        layer_norm_param: LayerNormParameter | Mapping[str, Any] | None = ...,
        matmul_param: MatMulParameter | Mapping[str, Any] | None = ...,
        roi_align_param: ROIAlignParameter | Mapping[str, Any] | None = ...,
        softmax_focal_loss_param: SoftmaxFocalLossParameter | Mapping[str, Any] | None = ...,
        triplet_loss_param: TripletLossParameter | Mapping[str, Any] | None = ...,
    ) -> None: ...

class TransformationParameter(Message):
    InterpolationAlgo: EnumTypeWrapper
    INTER_NEAREST: int
    INTER_LINEAR: int
    INTER_CUBIC: int
    INTER_AREA: int
    scale: float
    mirror: bool
    crop_size: int
    mean_file: str
    @property
    def mean_value(self) -> Scalars[float]: ...
    force_color: bool
    force_gray: bool
    crop_h: int
    crop_w: int
    @property
    def resize_param(self) -> ResizeParameter: ...
    @property
    def noise_param(self) -> NoiseParameter: ...
    @property
    def distort_param(self) -> DistortionParameter: ...
    @property
    def expand_param(self) -> ExpansionParameter: ...
    @property
    def emit_constraint(self) -> EmitConstraint: ...
    img_rand_resize_lower: int
    img_rand_resize_upper: int
    rand_resize_ratio_lower: float
    rand_resize_ratio_upper: float
    vertical_stretch_lower: float
    vertical_stretch_upper: float
    horizontal_stretch_lower: float
    horizontal_stretch_upper: float
    interpolation_algo_down: int
    interpolation_algo_up: int
    allow_upscale: bool
    forward_packing: int
    use_gpu_transform: bool
    random_seed: int
    display: bool
    num_labels: int
    @property
    def random_resize_param(self) -> RandomResizeParameter: ...
    @property
    def random_aspect_ratio_param(self) -> RandomAspectRatioParameter: ...
    flow: bool
    bgr2rgb: bool
    pad: int
    def __init__(
        self,
        *,
        scale: float | None = ...,
        mirror: bool | None = ...,
        crop_size: int | None = ...,
        mean_file: str | None = ...,
        mean_value: Iterable[float] | None = ...,
        force_color: bool | None = ...,
        force_gray: bool | None = ...,
        crop_h: int | None = ...,
        crop_w: int | None = ...,
        resize_param: ResizeParameter | Mapping[str, Any] | None = ...,
        noise_param: NoiseParameter | Mapping[str, Any] | None = ...,
        distort_param: DistortionParameter | Mapping[str, Any] | None = ...,
        expand_param: ExpansionParameter | Mapping[str, Any] | None = ...,
        emit_constraint: EmitConstraint | Mapping[str, Any] | None = ...,
        img_rand_resize_lower: int | None = ...,
        img_rand_resize_upper: int | None = ...,
        rand_resize_ratio_lower: float | None = ...,
        rand_resize_ratio_upper: float | None = ...,
        vertical_stretch_lower: float | None = ...,
        vertical_stretch_upper: float | None = ...,
        horizontal_stretch_lower: float | None = ...,
        horizontal_stretch_upper: float | None = ...,
        interpolation_algo_down: int | str | None = ...,
        interpolation_algo_up: int | str | None = ...,
        allow_upscale: bool | None = ...,
        forward_packing: int | str | None = ...,
        use_gpu_transform: bool | None = ...,
        random_seed: int | None = ...,
        display: bool | None = ...,
        num_labels: int | None = ...,
        random_resize_param: RandomResizeParameter | Mapping[str, Any] | None = ...,
        random_aspect_ratio_param: RandomAspectRatioParameter | Mapping[str, Any] | None = ...,
        flow: bool | None = ...,
        bgr2rgb: bool | None = ...,
        pad: int | None = ...,
    ) -> None: ...

class LossParameter(Message):
    NormalizationMode: EnumTypeWrapper
    FULL: int
    VALID: int
    BATCH_SIZE: int
    NONE: int
    PRE_FIXED: int
    ignore_label: int
    normalization: int
    normalize: bool
    label_smoothing: float
    pre_fixed_normalizer: float
    weight_by_label_freqs: bool
    @property
    def class_weighting(self) -> Scalars[float]: ...
    def __init__(
        self,
        *,
        ignore_label: int | None = ...,
        normalization: int | str | None = ...,
        normalize: bool | None = ...,
        label_smoothing: float | None = ...,
        pre_fixed_normalizer: float | None = ...,
        weight_by_label_freqs: bool | None = ...,
        class_weighting: Iterable[float] | None = ...,
    ) -> None: ...

class AccuracyParameter(Message):
    top_k: int
    axis: int
    ignore_label: int
    def __init__(
        self,
        *,
        top_k: int | None = ...,
        axis: int | None = ...,
        ignore_label: int | None = ...,
    ) -> None: ...

class ArgMaxParameter(Message):
    out_max_val: bool
    top_k: int
    axis: int
    def __init__(
        self,
        *,
        out_max_val: bool | None = ...,
        top_k: int | None = ...,
        axis: int | None = ...,
    ) -> None: ...

class BatchNormParameter(Message):
    Engine: EnumTypeWrapper
    DEFAULT: int
    CAFFE: int
    CUDNN: int
    MKL2017: int
    MKLDNN: int
    use_global_stats: bool
    moving_average_fraction: float
    eps: float
    @property
    def bias_filler(self) -> FillerParameter: ...
    engine: int
    @property
    def scale_filler(self) -> FillerParameter: ...
    scale_bias: bool
    use_weight_bias: bool
    bias_term: bool
    @property
    def filler(self) -> FillerParameter: ...
    stats_batch_size: int
    relu: bool
    sync: bool
    def __init__(
        self,
        *,
        use_global_stats: bool | None = ...,
        moving_average_fraction: float | None = ...,
        eps: float | None = ...,
        bias_filler: FillerParameter | Mapping[str, Any] | None = ...,
        engine: int | str | None = ...,
        scale_filler: FillerParameter | Mapping[str, Any] | None = ...,
        scale_bias: bool | None = ...,
        use_weight_bias: bool | None = ...,
        bias_term: bool | None = ...,
        filler: FillerParameter | Mapping[str, Any] | None = ...,
        stats_batch_size: int | None = ...,
        relu: bool | None = ...,
        sync: bool | None = ...,
    ) -> None: ...

class BiasParameter(Message):
    axis: int
    num_axes: int
    @property
    def filler(self) -> FillerParameter: ...
    def __init__(
        self,
        *,
        axis: int | None = ...,
        num_axes: int | None = ...,
        filler: FillerParameter | Mapping[str, Any] | None = ...,
    ) -> None: ...

class ClipParameter(Message):
    min: float
    max: float
    def __init__(
        self,
        *,
        min: float | None = ...,
        max: float | None = ...,
    ) -> None: ...

class ConcatParameter(Message):
    Engine: EnumTypeWrapper
    DEFAULT: int
    CAFFE: int
    MKL2017: int
    MKLDNN: int
    axis: int
    concat_dim: int
    per_fla_fuse: bool
    engine: int
    def __init__(
        self,
        *,
        axis: int | None = ...,
        concat_dim: int | None = ...,
        per_fla_fuse: bool | None = ...,
        engine: int | str | None = ...,
    ) -> None: ...

class ContrastiveLossParameter(Message):
    margin: float
    legacy_version: bool
    def __init__(
        self,
        *,
        margin: float | None = ...,
        legacy_version: bool | None = ...,
    ) -> None: ...

class ConvolutionParameter(Message):
    Engine: EnumTypeWrapper
    DEFAULT: int
    CAFFE: int
    CUDNN: int
    MKL2017: int
    MKLDNN: int
    CuDNNConvolutionAlgorithmSeeker: EnumTypeWrapper
    GET: int
    FINDEX: int
    FusionType: EnumTypeWrapper
    NONE_FUSION: int
    SUM_FUSION: int
    num_output: int
    bias_term: bool
    @property
    def pad(self) -> Scalars[int]: ...
    @property
    def kernel_size(self) -> Scalars[int]: ...
    @property
    def stride(self) -> Scalars[int]: ...
    @property
    def dilation(self) -> Scalars[int]: ...
    pad_h: int
    pad_w: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    group: int
    @property
    def weight_filler(self) -> FillerParameter: ...
    @property
    def bias_filler(self) -> FillerParameter: ...
    engine: int
    axis: int
    force_nd_im2col: bool
    cudnn_convolution_algo_seeker: int
    conv_algos_override: str
    relu: bool
    negative_slope: float
    conv_algorithm: str
    @property
    def coeff(self) -> Scalars[float]: ...
    fusion_type: int
    @property
    def hole(self) -> Scalars[int]: ...
    hole_h: int
    hole_w: int
    @property
    def filter_stride(self) -> Scalars[int]: ...
    def __init__(
        self,
        *,
        num_output: int | None = ...,
        bias_term: bool | None = ...,
        pad: Iterable[int] | None = ...,
        kernel_size: Iterable[int] | None = ...,
        stride: Iterable[int] | None = ...,
        dilation: Iterable[int] | None = ...,
        pad_h: int | None = ...,
        pad_w: int | None = ...,
        kernel_h: int | None = ...,
        kernel_w: int | None = ...,
        stride_h: int | None = ...,
        stride_w: int | None = ...,
        group: int | None = ...,
        weight_filler: FillerParameter | Mapping[str, Any] | None = ...,
        bias_filler: FillerParameter | Mapping[str, Any] | None = ...,
        engine: int | str | None = ...,
        axis: int | None = ...,
        force_nd_im2col: bool | None = ...,
        cudnn_convolution_algo_seeker: int | str | None = ...,
        conv_algos_override: str | None = ...,
        relu: bool | None = ...,
        negative_slope: float | None = ...,
        conv_algorithm: str | None = ...,
        coeff: Iterable[float] | None = ...,
        fusion_type: int | str | None = ...,
        hole: Iterable[int] | None = ...,
        hole_h: int | None = ...,
        hole_w: int | None = ...,
        filter_stride: Iterable[int] | None = ...,
    ) -> None: ...

class CropParameter(Message):
    axis: int
    @property
    def offset(self) -> Scalars[int]: ...
    def __init__(
        self,
        *,
        axis: int | None = ...,
        offset: Iterable[int] | None = ...,
    ) -> None: ...

class DataParameter(Message):
    DB: EnumTypeWrapper
    LEVELDB: int
    LMDB: int
    source: str
    batch_size: int
    rand_skip: int
    backend: int
    scale: float
    mean_file: str
    crop_size: int
    mirror: bool
    force_encoded_color: bool
    prefetch: int
    shuffle: bool
    threads: int
    parser_threads: int
    cache: bool
    precache: bool
    @property
    def side(self) -> Scalars[int]: ...
    def __init__(
        self,
        *,
        source: str | None = ...,
        batch_size: int | None = ...,
        rand_skip: int | None = ...,
        backend: int | str | None = ...,
        scale: float | None = ...,
        mean_file: str | None = ...,
        crop_size: int | None = ...,
        mirror: bool | None = ...,
        force_encoded_color: bool | None = ...,
        prefetch: int | None = ...,
        shuffle: bool | None = ...,
        threads: int | None = ...,
        parser_threads: int | None = ...,
        cache: bool | None = ...,
        precache: bool | None = ...,
        side: Iterable[int] | None = ...,
    ) -> None: ...

class DropoutParameter(Message):
    Engine: EnumTypeWrapper
    DEFAULT: int
    CAFFE: int
    CUDNN: int
    dropout_ratio: float
    engine: int
    random_seed: int
    scale_train: bool
    sample_weights_test: bool
    def __init__(
        self,
        *,
        dropout_ratio: float | None = ...,
        engine: int | str | None = ...,
        random_seed: int | None = ...,
        scale_train: bool | None = ...,
        sample_weights_test: bool | None = ...,
    ) -> None: ...

class DummyDataParameter(Message):
    @property
    def data_filler(self) -> Messages[FillerParameter]: ...
    @property
    def shape(self) -> Messages[BlobShape]: ...
    @property
    def num(self) -> Scalars[int]: ...
    @property
    def channels(self) -> Scalars[int]: ...
    @property
    def height(self) -> Scalars[int]: ...
    @property
    def width(self) -> Scalars[int]: ...
    def __init__(
        self,
        *,
        data_filler: Iterable[FillerParameter | Mapping[str, Any]] | None = ...,
        shape: Iterable[BlobShape | Mapping[str, Any]] | None = ...,
        num: Iterable[int] | None = ...,
        channels: Iterable[int] | None = ...,
        height: Iterable[int] | None = ...,
        width: Iterable[int] | None = ...,
    ) -> None: ...

class EltwiseParameter(Message):
    EltwiseOp: EnumTypeWrapper
    PROD: int
    SUM: int
    MAX: int
    Engine: EnumTypeWrapper
    DEFAULT: int
    CAFFE: int
    MKL2017: int
    MKLDNN: int
    operation: int
    @property
    def coeff(self) -> Scalars[float]: ...
    stable_prod_grad: bool
    engine: int
    def __init__(
        self,
        *,
        operation: int | str | None = ...,
        coeff: Iterable[float] | None = ...,
        stable_prod_grad: bool | None = ...,
        engine: int | str | None = ...,
    ) -> None: ...

class ELUParameter(Message):
    alpha: float
    def __init__(
        self,
        *,
        alpha: float | None = ...,
    ) -> None: ...

class EmbedParameter(Message):
    num_output: int
    input_dim: int
    bias_term: bool
    @property
    def weight_filler(self) -> FillerParameter: ...
    @property
    def bias_filler(self) -> FillerParameter: ...
    def __init__(
        self,
        *,
        num_output: int | None = ...,
        input_dim: int | None = ...,
        bias_term: bool | None = ...,
        weight_filler: FillerParameter | Mapping[str, Any] | None = ...,
        bias_filler: FillerParameter | Mapping[str, Any] | None = ...,
    ) -> None: ...

class ExpParameter(Message):
    base: float
    scale: float
    shift: float
    def __init__(
        self,
        *,
        base: float | None = ...,
        scale: float | None = ...,
        shift: float | None = ...,
    ) -> None: ...

class FlattenParameter(Message):
    axis: int
    end_axis: int
    def __init__(
        self,
        *,
        axis: int | None = ...,
        end_axis: int | None = ...,
    ) -> None: ...

class HDF5DataParameter(Message):
    source: str
    batch_size: int
    shuffle: bool
    def __init__(
        self,
        *,
        source: str | None = ...,
        batch_size: int | None = ...,
        shuffle: bool | None = ...,
    ) -> None: ...

class HDF5OutputParameter(Message):
    file_name: str
    def __init__(
        self,
        *,
        file_name: str | None = ...,
    ) -> None: ...

class HingeLossParameter(Message):
    Norm: EnumTypeWrapper
    L1: int
    L2: int
    norm: int
    def __init__(
        self,
        *,
        norm: int | str | None = ...,
    ) -> None: ...

class ImageDataParameter(Message):
    LabelType: EnumTypeWrapper
    NONE: int
    IMAGE: int
    PIXEL: int
    source: str
    batch_size: int
    rand_skip: int
    shuffle: bool
    new_height: int
    new_width: int
    is_color: bool
    scale: float
    mean_file: str
    crop_size: int
    mirror: bool
    root_folder: str
    short_side: int
    threads: int
    cache: bool
    precache: bool
    dataset_share_per_node: float
    min_height: int
    min_width: int
    label_type: int
    def __init__(
        self,
        *,
        source: str | None = ...,
        batch_size: int | None = ...,
        rand_skip: int | None = ...,
        shuffle: bool | None = ...,
        new_height: int | None = ...,
        new_width: int | None = ...,
        is_color: bool | None = ...,
        scale: float | None = ...,
        mean_file: str | None = ...,
        crop_size: int | None = ...,
        mirror: bool | None = ...,
        root_folder: str | None = ...,
        short_side: int | None = ...,
        threads: int | None = ...,
        cache: bool | None = ...,
        precache: bool | None = ...,
        dataset_share_per_node: float | None = ...,
        min_height: int | None = ...,
        min_width: int | None = ...,
        label_type: int | str | None = ...,
    ) -> None: ...

class InfogainLossParameter(Message):
    source: str
    axis: int
    def __init__(
        self,
        *,
        source: str | None = ...,
        axis: int | None = ...,
    ) -> None: ...

class InnerProductParameter(Message):
    Engine: EnumTypeWrapper
    DEFAULT: int
    CAFFE: int
    CUDNN: int
    MKLDNN: int
    num_output: int
    bias_term: bool
    @property
    def weight_filler(self) -> FillerParameter: ...
    @property
    def bias_filler(self) -> FillerParameter: ...
    axis: int
    transpose: bool
    engine: int
    relu: bool
    negative_slope: float
    def __init__(
        self,
        *,
        num_output: int | None = ...,
        bias_term: bool | None = ...,
        weight_filler: FillerParameter | Mapping[str, Any] | None = ...,
        bias_filler: FillerParameter | Mapping[str, Any] | None = ...,
        axis: int | None = ...,
        transpose: bool | None = ...,
        engine: int | str | None = ...,
        relu: bool | None = ...,
        negative_slope: float | None = ...,
    ) -> None: ...

class InputParameter(Message):
    @property
    def shape(self) -> Messages[BlobShape]: ...
    def __init__(
        self,
        *,
        shape: Iterable[BlobShape | Mapping[str, Any]] | None = ...,
    ) -> None: ...

class LogParameter(Message):
    base: float
    scale: float
    shift: float
    def __init__(
        self,
        *,
        base: float | None = ...,
        scale: float | None = ...,
        shift: float | None = ...,
    ) -> None: ...

class LRNParameter(Message):
    NormRegion: EnumTypeWrapper
    ACROSS_CHANNELS: int
    WITHIN_CHANNEL: int
    Engine: EnumTypeWrapper
    DEFAULT: int
    CAFFE: int
    CUDNN: int
    MKL2017: int
    MKLDNN: int
    local_size: int
    alpha: float
    beta: float
    norm_region: int
    k: float
    engine: int
    def __init__(
        self,
        *,
        local_size: int | None = ...,
        alpha: float | None = ...,
        beta: float | None = ...,
        norm_region: int | str | None = ...,
        k: float | None = ...,
        engine: int | str | None = ...,
    ) -> None: ...

class MemoryDataParameter(Message):
    batch_size: int
    channels: int
    height: int
    width: int
    def __init__(
        self,
        *,
        batch_size: int | None = ...,
        channels: int | None = ...,
        height: int | None = ...,
        width: int | None = ...,
    ) -> None: ...

class MVNParameter(Message):
    normalize_variance: bool
    across_channels: bool
    eps: float
    def __init__(
        self,
        *,
        normalize_variance: bool | None = ...,
        across_channels: bool | None = ...,
        eps: float | None = ...,
    ) -> None: ...

class ParameterParameter(Message):
    @property
    def shape(self) -> BlobShape: ...
    def __init__(
        self,
        *,
        shape: BlobShape | Mapping[str, Any] | None = ...,
    ) -> None: ...

class PoolingParameter(Message):
    PoolMethod: EnumTypeWrapper
    MAX: int
    AVE: int
    STOCHASTIC: int
    Engine: EnumTypeWrapper
    DEFAULT: int
    CAFFE: int
    CUDNN: int
    MKL2017: int
    MKLDNN: int
    RoundMode: EnumTypeWrapper
    CEIL: int
    FLOOR: int
    pool: int
    pad: int
    pad_h: int
    pad_w: int
    kernel_size: int
    kernel_h: int
    kernel_w: int
    stride: int
    stride_h: int
    stride_w: int
    engine: int
    global_pooling: bool
    round_mode: int
    torch_pooling: bool
    @property
    def pad_3d(self) -> Scalars[int]: ...
    @property
    def kernel_size_3d(self) -> Scalars[int]: ...
    @property
    def stride_3d(self) -> Scalars[int]: ...
    avg_include_pad: bool
    axis: int
    ceil_mode: bool
    def __init__(
        self,
        *,
        pool: int | str | None = ...,
        pad: int | None = ...,
        pad_h: int | None = ...,
        pad_w: int | None = ...,
        kernel_size: int | None = ...,
        kernel_h: int | None = ...,
        kernel_w: int | None = ...,
        stride: int | None = ...,
        stride_h: int | None = ...,
        stride_w: int | None = ...,
        engine: int | str | None = ...,
        global_pooling: bool | None = ...,
        round_mode: int | str | None = ...,
        torch_pooling: bool | None = ...,
        pad_3d: Iterable[int] | None = ...,
        kernel_size_3d: Iterable[int] | None = ...,
        stride_3d: Iterable[int] | None = ...,
        avg_include_pad: bool | None = ...,
        axis: int | None = ...,
        ceil_mode: bool | None = ...,
    ) -> None: ...

class PowerParameter(Message):
    power: float
    scale: float
    shift: float
    def __init__(
        self,
        *,
        power: float | None = ...,
        scale: float | None = ...,
        shift: float | None = ...,
    ) -> None: ...

class PReLUParameter(Message):
    @property
    def filler(self) -> FillerParameter: ...
    channel_shared: bool
    def __init__(
        self,
        *,
        filler: FillerParameter | Mapping[str, Any] | None = ...,
        channel_shared: bool | None = ...,
    ) -> None: ...

class PythonParameter(Message):
    module: str
    layer: str
    param_str: str
    share_in_parallel: bool
    def __init__(
        self,
        *,
        module: str | None = ...,
        layer: str | None = ...,
        param_str: str | None = ...,
        share_in_parallel: bool | None = ...,
    ) -> None: ...

class RecurrentParameter(Message):
    num_output: int
    @property
    def weight_filler(self) -> FillerParameter: ...
    @property
    def bias_filler(self) -> FillerParameter: ...
    debug_info: bool
    expose_hidden: bool
    def __init__(
        self,
        *,
        num_output: int | None = ...,
        weight_filler: FillerParameter | Mapping[str, Any] | None = ...,
        bias_filler: FillerParameter | Mapping[str, Any] | None = ...,
        debug_info: bool | None = ...,
        expose_hidden: bool | None = ...,
    ) -> None: ...

class ReductionParameter(Message):
    ReductionOp: EnumTypeWrapper
    SUM: int
    ASUM: int
    SUMSQ: int
    MEAN: int
    operation: int
    axis: int
    coeff: float
    def __init__(
        self,
        *,
        operation: int | str | None = ...,
        axis: int | None = ...,
        coeff: float | None = ...,
    ) -> None: ...

class ReLUParameter(Message):
    Engine: EnumTypeWrapper
    DEFAULT: int
    CAFFE: int
    CUDNN: int
    MKL2017: int
    MKLDNN: int
    negative_slope: float
    engine: int
    fuse: bool
    def __init__(
        self,
        *,
        negative_slope: float | None = ...,
        engine: int | str | None = ...,
        fuse: bool | None = ...,
    ) -> None: ...

class ReshapeParameter(Message):
    @property
    def shape(self) -> BlobShape: ...
    axis: int
    num_axes: int
    pixelshuffler: int
    def __init__(
        self,
        *,
        shape: BlobShape | Mapping[str, Any] | None = ...,
        axis: int | None = ...,
        num_axes: int | None = ...,
        pixelshuffler: int | None = ...,
    ) -> None: ...

class ScaleParameter(Message):
    axis: int
    num_axes: int
    @property
    def filler(self) -> FillerParameter: ...
    bias_term: bool
    @property
    def bias_filler(self) -> FillerParameter: ...
    def __init__(
        self,
        *,
        axis: int | None = ...,
        num_axes: int | None = ...,
        filler: FillerParameter | Mapping[str, Any] | None = ...,
        bias_term: bool | None = ...,
        bias_filler: FillerParameter | Mapping[str, Any] | None = ...,
    ) -> None: ...

class SigmoidParameter(Message):
    Engine: EnumTypeWrapper
    DEFAULT: int
    CAFFE: int
    CUDNN: int
    engine: int
    def __init__(
        self,
        *,
        engine: int | str | None = ...,
    ) -> None: ...

class SliceParameter(Message):
    axis: int
    @property
    def slice_point(self) -> Scalars[int]: ...
    slice_dim: int
    def __init__(
        self,
        *,
        axis: int | None = ...,
        slice_point: Iterable[int] | None = ...,
        slice_dim: int | None = ...,
    ) -> None: ...

class SoftmaxParameter(Message):
    Engine: EnumTypeWrapper
    DEFAULT: int
    CAFFE: int
    CUDNN: int
    engine: int
    axis: int
    def __init__(
        self,
        *,
        engine: int | str | None = ...,
        axis: int | None = ...,
    ) -> None: ...

class SPPParameter(Message):
    PoolMethod: EnumTypeWrapper
    MAX: int
    AVE: int
    STOCHASTIC: int
    Engine: EnumTypeWrapper
    DEFAULT: int
    CAFFE: int
    CUDNN: int
    pyramid_height: int
    pool: int
    engine: int
    def __init__(
        self,
        *,
        pyramid_height: int | None = ...,
        pool: int | str | None = ...,
        engine: int | str | None = ...,
    ) -> None: ...

class SwishParameter(Message):
    beta: float
    def __init__(
        self,
        *,
        beta: float | None = ...,
    ) -> None: ...

class TanHParameter(Message):
    Engine: EnumTypeWrapper
    DEFAULT: int
    CAFFE: int
    CUDNN: int
    engine: int
    def __init__(
        self,
        *,
        engine: int | str | None = ...,
    ) -> None: ...

class ThresholdParameter(Message):
    threshold: float
    def __init__(
        self,
        *,
        threshold: float | None = ...,
    ) -> None: ...

class TileParameter(Message):
    axis: int
    tiles: int
    def __init__(
        self,
        *,
        axis: int | None = ...,
        tiles: int | None = ...,
    ) -> None: ...

class WindowDataParameter(Message):
    source: str
    scale: float
    mean_file: str
    batch_size: int
    crop_size: int
    mirror: bool
    fg_threshold: float
    bg_threshold: float
    fg_fraction: float
    context_pad: int
    crop_mode: str
    cache_images: bool
    root_folder: str
    def __init__(
        self,
        *,
        source: str | None = ...,
        scale: float | None = ...,
        mean_file: str | None = ...,
        batch_size: int | None = ...,
        crop_size: int | None = ...,
        mirror: bool | None = ...,
        fg_threshold: float | None = ...,
        bg_threshold: float | None = ...,
        fg_fraction: float | None = ...,
        context_pad: int | None = ...,
        crop_mode: str | None = ...,
        cache_images: bool | None = ...,
        root_folder: str | None = ...,
    ) -> None: ...

class V1LayerParameter(Message):
    LayerType: EnumTypeWrapper
    NONE: int
    ABSVAL: int
    ACCURACY: int
    ARGMAX: int
    BNLL: int
    CONCAT: int
    CONTRASTIVE_LOSS: int
    CONVOLUTION: int
    DATA: int
    DECONVOLUTION: int
    DROPOUT: int
    DUMMY_DATA: int
    EUCLIDEAN_LOSS: int
    ELTWISE: int
    EXP: int
    FLATTEN: int
    HDF5_DATA: int
    HDF5_OUTPUT: int
    HINGE_LOSS: int
    IM2COL: int
    IMAGE_DATA: int
    INFOGAIN_LOSS: int
    INNER_PRODUCT: int
    LRN: int
    MEMORY_DATA: int
    MULTINOMIAL_LOGISTIC_LOSS: int
    MVN: int
    POOLING: int
    POWER: int
    RELU: int
    SIGMOID: int
    SIGMOID_CROSS_ENTROPY_LOSS: int
    SILENCE: int
    SOFTMAX: int
    SOFTMAX_LOSS: int
    SPLIT: int
    SLICE: int
    TANH: int
    WINDOW_DATA: int
    THRESHOLD: int
    CROP: int
    DimCheckMode: EnumTypeWrapper
    STRICT: int
    PERMISSIVE: int
    @property
    def bottom(self) -> Scalars[str]: ...
    @property
    def top(self) -> Scalars[str]: ...
    name: str
    @property
    def include(self) -> Messages[NetStateRule]: ...
    @property
    def exclude(self) -> Messages[NetStateRule]: ...
    type: int
    @property
    def blobs(self) -> Messages[BlobProto]: ...
    @property
    def param(self) -> Scalars[str]: ...
    @property
    def blob_share_mode(self) -> Scalars[int]: ...
    @property
    def blobs_lr(self) -> Scalars[float]: ...
    @property
    def weight_decay(self) -> Scalars[float]: ...
    @property
    def loss_weight(self) -> Scalars[float]: ...
    @property
    def accuracy_param(self) -> AccuracyParameter: ...
    @property
    def argmax_param(self) -> ArgMaxParameter: ...
    @property
    def concat_param(self) -> ConcatParameter: ...
    @property
    def contrastive_loss_param(self) -> ContrastiveLossParameter: ...
    @property
    def convolution_param(self) -> ConvolutionParameter: ...
    @property
    def data_param(self) -> DataParameter: ...
    @property
    def dropout_param(self) -> DropoutParameter: ...
    @property
    def dummy_data_param(self) -> DummyDataParameter: ...
    @property
    def eltwise_param(self) -> EltwiseParameter: ...
    @property
    def exp_param(self) -> ExpParameter: ...
    @property
    def hdf5_data_param(self) -> HDF5DataParameter: ...
    @property
    def hdf5_output_param(self) -> HDF5OutputParameter: ...
    @property
    def hinge_loss_param(self) -> HingeLossParameter: ...
    @property
    def image_data_param(self) -> ImageDataParameter: ...
    @property
    def infogain_loss_param(self) -> InfogainLossParameter: ...
    @property
    def inner_product_param(self) -> InnerProductParameter: ...
    @property
    def lrn_param(self) -> LRNParameter: ...
    @property
    def memory_data_param(self) -> MemoryDataParameter: ...
    @property
    def mvn_param(self) -> MVNParameter: ...
    @property
    def pooling_param(self) -> PoolingParameter: ...
    @property
    def power_param(self) -> PowerParameter: ...
    @property
    def relu_param(self) -> ReLUParameter: ...
    @property
    def sigmoid_param(self) -> SigmoidParameter: ...
    @property
    def softmax_param(self) -> SoftmaxParameter: ...
    @property
    def slice_param(self) -> SliceParameter: ...
    @property
    def tanh_param(self) -> TanHParameter: ...
    @property
    def threshold_param(self) -> ThresholdParameter: ...
    @property
    def window_data_param(self) -> WindowDataParameter: ...
    @property
    def transform_param(self) -> TransformationParameter: ...
    @property
    def loss_param(self) -> LossParameter: ...
    @property
    def layer(self) -> V0LayerParameter: ...
    @property
    def crop_param(self) -> CropParameter: ...
    def __init__(
        self,
        *,
        bottom: Iterable[str] | None = ...,
        top: Iterable[str] | None = ...,
        name: str | None = ...,
        include: Iterable[NetStateRule | Mapping[str, Any]] | None = ...,
        exclude: Iterable[NetStateRule | Mapping[str, Any]] | None = ...,
        type: int | str | None = ...,
        blobs: Iterable[BlobProto | Mapping[str, Any]] | None = ...,
        param: Iterable[str] | None = ...,
        blob_share_mode: Iterable[int | str] | None = ...,
        blobs_lr: Iterable[float] | None = ...,
        weight_decay: Iterable[float] | None = ...,
        loss_weight: Iterable[float] | None = ...,
        accuracy_param: AccuracyParameter | Mapping[str, Any] | None = ...,
        argmax_param: ArgMaxParameter | Mapping[str, Any] | None = ...,
        concat_param: ConcatParameter | Mapping[str, Any] | None = ...,
        contrastive_loss_param: ContrastiveLossParameter | Mapping[str, Any] | None = ...,
        convolution_param: ConvolutionParameter | Mapping[str, Any] | None = ...,
        data_param: DataParameter | Mapping[str, Any] | None = ...,
        dropout_param: DropoutParameter | Mapping[str, Any] | None = ...,
        dummy_data_param: DummyDataParameter | Mapping[str, Any] | None = ...,
        eltwise_param: EltwiseParameter | Mapping[str, Any] | None = ...,
        exp_param: ExpParameter | Mapping[str, Any] | None = ...,
        hdf5_data_param: HDF5DataParameter | Mapping[str, Any] | None = ...,
        hdf5_output_param: HDF5OutputParameter | Mapping[str, Any] | None = ...,
        hinge_loss_param: HingeLossParameter | Mapping[str, Any] | None = ...,
        image_data_param: ImageDataParameter | Mapping[str, Any] | None = ...,
        infogain_loss_param: InfogainLossParameter | Mapping[str, Any] | None = ...,
        inner_product_param: InnerProductParameter | Mapping[str, Any] | None = ...,
        lrn_param: LRNParameter | Mapping[str, Any] | None = ...,
        memory_data_param: MemoryDataParameter | Mapping[str, Any] | None = ...,
        mvn_param: MVNParameter | Mapping[str, Any] | None = ...,
        pooling_param: PoolingParameter | Mapping[str, Any] | None = ...,
        power_param: PowerParameter | Mapping[str, Any] | None = ...,
        relu_param: ReLUParameter | Mapping[str, Any] | None = ...,
        sigmoid_param: SigmoidParameter | Mapping[str, Any] | None = ...,
        softmax_param: SoftmaxParameter | Mapping[str, Any] | None = ...,
        slice_param: SliceParameter | Mapping[str, Any] | None = ...,
        tanh_param: TanHParameter | Mapping[str, Any] | None = ...,
        threshold_param: ThresholdParameter | Mapping[str, Any] | None = ...,
        window_data_param: WindowDataParameter | Mapping[str, Any] | None = ...,
        transform_param: TransformationParameter | Mapping[str, Any] | None = ...,
        loss_param: LossParameter | Mapping[str, Any] | None = ...,
        layer: V0LayerParameter | Mapping[str, Any] | None = ...,
        crop_param: CropParameter | Mapping[str, Any] | None = ...,
    ) -> None: ...

class V0LayerParameter(Message):
    PoolMethod: EnumTypeWrapper
    MAX: int
    AVE: int
    STOCHASTIC: int
    name: str
    type: str
    num_output: int
    biasterm: bool
    @property
    def weight_filler(self) -> FillerParameter: ...
    @property
    def bias_filler(self) -> FillerParameter: ...
    pad: int
    kernelsize: int
    group: int
    stride: int
    pool: int
    dropout_ratio: float
    local_size: int
    alpha: float
    beta: float
    k: float
    source: str
    scale: float
    meanfile: str
    batchsize: int
    cropsize: int
    mirror: bool
    @property
    def blobs(self) -> Messages[BlobProto]: ...
    @property
    def blobs_lr(self) -> Scalars[float]: ...
    @property
    def weight_decay(self) -> Scalars[float]: ...
    rand_skip: int
    det_fg_threshold: float
    det_bg_threshold: float
    det_fg_fraction: float
    det_context_pad: int
    det_crop_mode: str
    new_num: int
    new_channels: int
    new_height: int
    new_width: int
    shuffle_images: bool
    concat_dim: int
    @property
    def hdf5_output_param(self) -> HDF5OutputParameter: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        type: str | None = ...,
        num_output: int | None = ...,
        biasterm: bool | None = ...,
        weight_filler: FillerParameter | Mapping[str, Any] | None = ...,
        bias_filler: FillerParameter | Mapping[str, Any] | None = ...,
        pad: int | None = ...,
        kernelsize: int | None = ...,
        group: int | None = ...,
        stride: int | None = ...,
        pool: int | str | None = ...,
        dropout_ratio: float | None = ...,
        local_size: int | None = ...,
        alpha: float | None = ...,
        beta: float | None = ...,
        k: float | None = ...,
        source: str | None = ...,
        scale: float | None = ...,
        meanfile: str | None = ...,
        batchsize: int | None = ...,
        cropsize: int | None = ...,
        mirror: bool | None = ...,
        blobs: Iterable[BlobProto | Mapping[str, Any]] | None = ...,
        blobs_lr: Iterable[float] | None = ...,
        weight_decay: Iterable[float] | None = ...,
        rand_skip: int | None = ...,
        det_fg_threshold: float | None = ...,
        det_bg_threshold: float | None = ...,
        det_fg_fraction: float | None = ...,
        det_context_pad: int | None = ...,
        det_crop_mode: str | None = ...,
        new_num: int | None = ...,
        new_channels: int | None = ...,
        new_height: int | None = ...,
        new_width: int | None = ...,
        shuffle_images: bool | None = ...,
        concat_dim: int | None = ...,
        hdf5_output_param: HDF5OutputParameter | Mapping[str, Any] | None = ...,
    ) -> None: ...

class LabelMapItem(Message):
    name: str
    label: int
    display_name: str
    def __init__(
        self,
        *,
        name: str | None = ...,
        label: int | None = ...,
        display_name: str | None = ...,
    ) -> None: ...

class LabelMap(Message):
    @property
    def item(self) -> Messages[LabelMapItem]: ...
    def __init__(
        self,
        *,
        item: Iterable[LabelMapItem | Mapping[str, Any]] | None = ...,
    ) -> None: ...

class Sampler(Message):
    min_scale: float
    max_scale: float
    min_aspect_ratio: float
    max_aspect_ratio: float
    def __init__(
        self,
        *,
        min_scale: float | None = ...,
        max_scale: float | None = ...,
        min_aspect_ratio: float | None = ...,
        max_aspect_ratio: float | None = ...,
    ) -> None: ...

class SampleConstraint(Message):
    min_jaccard_overlap: float
    max_jaccard_overlap: float
    min_sample_coverage: float
    max_sample_coverage: float
    min_object_coverage: float
    max_object_coverage: float
    def __init__(
        self,
        *,
        min_jaccard_overlap: float | None = ...,
        max_jaccard_overlap: float | None = ...,
        min_sample_coverage: float | None = ...,
        max_sample_coverage: float | None = ...,
        min_object_coverage: float | None = ...,
        max_object_coverage: float | None = ...,
    ) -> None: ...

class BatchSampler(Message):
    use_original_image: bool
    @property
    def sampler(self) -> Sampler: ...
    @property
    def sample_constraint(self) -> SampleConstraint: ...
    max_sample: int
    max_trials: int
    def __init__(
        self,
        *,
        use_original_image: bool | None = ...,
        sampler: Sampler | Mapping[str, Any] | None = ...,
        sample_constraint: SampleConstraint | Mapping[str, Any] | None = ...,
        max_sample: int | None = ...,
        max_trials: int | None = ...,
    ) -> None: ...

class EmitConstraint(Message):
    EmitType: EnumTypeWrapper
    CENTER: int
    MIN_OVERLAP: int
    emit_type: int
    emit_overlap: float
    def __init__(
        self,
        *,
        emit_type: int | str | None = ...,
        emit_overlap: float | None = ...,
    ) -> None: ...

class NormalizedBBox(Message):
    xmin: float
    ymin: float
    xmax: float
    ymax: float
    label: int
    difficult: bool
    score: float
    size: float
    def __init__(
        self,
        *,
        xmin: float | None = ...,
        ymin: float | None = ...,
        xmax: float | None = ...,
        ymax: float | None = ...,
        label: int | None = ...,
        difficult: bool | None = ...,
        score: float | None = ...,
        size: float | None = ...,
    ) -> None: ...

class Annotation(Message):
    instance_id: int
    @property
    def bbox(self) -> NormalizedBBox: ...
    def __init__(
        self,
        *,
        instance_id: int | None = ...,
        bbox: NormalizedBBox | Mapping[str, Any] | None = ...,
    ) -> None: ...

class AnnotationGroup(Message):
    group_label: int
    @property
    def annotation(self) -> Messages[Annotation]: ...
    def __init__(
        self,
        *,
        group_label: int | None = ...,
        annotation: Iterable[Annotation | Mapping[str, Any]] | None = ...,
    ) -> None: ...

class AnnotatedDatum(Message):
    AnnotationType: EnumTypeWrapper
    BBOX: int
    @property
    def datum(self) -> Datum: ...
    type: int
    @property
    def annotation_group(self) -> Messages[AnnotationGroup]: ...
    record_id: int
    def __init__(
        self,
        *,
        datum: Datum | Mapping[str, Any] | None = ...,
        type: int | str | None = ...,
        annotation_group: Iterable[AnnotationGroup | Mapping[str, Any]] | None = ...,
        record_id: int | None = ...,
    ) -> None: ...

class AnnotatedDataParameter(Message):
    @property
    def batch_sampler(self) -> Messages[BatchSampler]: ...
    label_map_file: str
    anno_type: int
    def __init__(
        self,
        *,
        batch_sampler: Iterable[BatchSampler | Mapping[str, Any]] | None = ...,
        label_map_file: str | None = ...,
        anno_type: int | str | None = ...,
    ) -> None: ...

class ResizeParameter(Message):
    Resize_mode: EnumTypeWrapper
    WARP: int
    FIT_SMALL_SIZE: int
    FIT_LARGE_SIZE_AND_PAD: int
    Pad_mode: EnumTypeWrapper
    CONSTANT: int
    MIRRORED: int
    REPEAT_NEAREST: int
    Interp_mode: EnumTypeWrapper
    LINEAR: int
    AREA: int
    NEAREST: int
    CUBIC: int
    LANCZOS4: int
    prob: float
    resize_mode: int
    height: int
    width: int
    height_scale: int
    width_scale: int
    pad_mode: int
    @property
    def pad_value(self) -> Scalars[float]: ...
    @property
    def interp_mode(self) -> Scalars[int]: ...
    def __init__(
        self,
        *,
        prob: float | None = ...,
        resize_mode: int | str | None = ...,
        height: int | None = ...,
        width: int | None = ...,
        height_scale: int | None = ...,
        width_scale: int | None = ...,
        pad_mode: int | str | None = ...,
        pad_value: Iterable[float] | None = ...,
        interp_mode: Iterable[int | str] | None = ...,
    ) -> None: ...

class SaltPepperParameter(Message):
    fraction: float
    @property
    def value(self) -> Scalars[float]: ...
    def __init__(
        self,
        *,
        fraction: float | None = ...,
        value: Iterable[float] | None = ...,
    ) -> None: ...

class NoiseParameter(Message):
    prob: float
    hist_eq: bool
    inverse: bool
    decolorize: bool
    gauss_blur: bool
    jpeg: float
    posterize: bool
    erode: bool
    saltpepper: bool
    @property
    def saltpepper_param(self) -> SaltPepperParameter: ...
    clahe: bool
    convert_to_hsv: bool
    convert_to_lab: bool
    def __init__(
        self,
        *,
        prob: float | None = ...,
        hist_eq: bool | None = ...,
        inverse: bool | None = ...,
        decolorize: bool | None = ...,
        gauss_blur: bool | None = ...,
        jpeg: float | None = ...,
        posterize: bool | None = ...,
        erode: bool | None = ...,
        saltpepper: bool | None = ...,
        saltpepper_param: SaltPepperParameter | Mapping[str, Any] | None = ...,
        clahe: bool | None = ...,
        convert_to_hsv: bool | None = ...,
        convert_to_lab: bool | None = ...,
    ) -> None: ...

class DistortionParameter(Message):
    brightness_prob: float
    brightness_delta: float
    contrast_prob: float
    contrast_lower: float
    contrast_upper: float
    hue_prob: float
    hue_delta: float
    saturation_prob: float
    saturation_lower: float
    saturation_upper: float
    random_order_prob: float
    def __init__(
        self,
        *,
        brightness_prob: float | None = ...,
        brightness_delta: float | None = ...,
        contrast_prob: float | None = ...,
        contrast_lower: float | None = ...,
        contrast_upper: float | None = ...,
        hue_prob: float | None = ...,
        hue_delta: float | None = ...,
        saturation_prob: float | None = ...,
        saturation_lower: float | None = ...,
        saturation_upper: float | None = ...,
        random_order_prob: float | None = ...,
    ) -> None: ...

class ExpansionParameter(Message):
    prob: float
    max_expand_ratio: float
    def __init__(
        self,
        *,
        prob: float | None = ...,
        max_expand_ratio: float | None = ...,
    ) -> None: ...

class DetectionEvaluateParameter(Message):
    num_classes: int
    background_label_id: int
    overlap_threshold: float
    evaluate_difficult_gt: bool
    name_size_file: str
    @property
    def resize_param(self) -> ResizeParameter: ...
    def __init__(
        self,
        *,
        num_classes: int | None = ...,
        background_label_id: int | None = ...,
        overlap_threshold: float | None = ...,
        evaluate_difficult_gt: bool | None = ...,
        name_size_file: str | None = ...,
        resize_param: ResizeParameter | Mapping[str, Any] | None = ...,
    ) -> None: ...

class NonMaximumSuppressionParameter(Message):
    nms_threshold: float
    top_k: int
    eta: float
    def __init__(
        self,
        *,
        nms_threshold: float | None = ...,
        top_k: int | None = ...,
        eta: float | None = ...,
    ) -> None: ...

class SaveOutputParameter(Message):
    output_directory: str
    output_name_prefix: str
    output_format: str
    label_map_file: str
    name_size_file: str
    num_test_image: int
    @property
    def resize_param(self) -> ResizeParameter: ...
    def __init__(
        self,
        *,
        output_directory: str | None = ...,
        output_name_prefix: str | None = ...,
        output_format: str | None = ...,
        label_map_file: str | None = ...,
        name_size_file: str | None = ...,
        num_test_image: int | None = ...,
        resize_param: ResizeParameter | Mapping[str, Any] | None = ...,
    ) -> None: ...

class DetectionOutputParameter(Message):
    num_classes: int
    share_location: bool
    background_label_id: int
    @property
    def nms_param(self) -> NonMaximumSuppressionParameter: ...
    @property
    def save_output_param(self) -> SaveOutputParameter: ...
    code_type: int
    variance_encoded_in_target: bool
    keep_top_k: int
    confidence_threshold: float
    visualize: bool
    visualize_threshold: float
    save_file: str
    objectness_score: float
    clip: bool
    def __init__(
        self,
        *,
        num_classes: int | None = ...,
        share_location: bool | None = ...,
        background_label_id: int | None = ...,
        nms_param: NonMaximumSuppressionParameter | Mapping[str, Any] | None = ...,
        save_output_param: SaveOutputParameter | Mapping[str, Any] | None = ...,
        code_type: int | str | None = ...,
        variance_encoded_in_target: bool | None = ...,
        keep_top_k: int | None = ...,
        confidence_threshold: float | None = ...,
        visualize: bool | None = ...,
        visualize_threshold: float | None = ...,
        save_file: str | None = ...,
        objectness_score: float | None = ...,
        clip: bool | None = ...,
    ) -> None: ...

class MultiBoxLossParameter(Message):
    LocLossType: EnumTypeWrapper
    L2: int
    SMOOTH_L1: int
    ConfLossType: EnumTypeWrapper
    SOFTMAX: int
    LOGISTIC: int
    MatchType: EnumTypeWrapper
    BIPARTITE: int
    PER_PREDICTION: int
    MiningType: EnumTypeWrapper
    NONE: int
    MAX_NEGATIVE: int
    HARD_EXAMPLE: int
    loc_loss_type: int
    conf_loss_type: int
    loc_weight: float
    num_classes: int
    share_location: bool
    match_type: int
    overlap_threshold: float
    use_prior_for_matching: bool
    background_label_id: int
    use_difficult_gt: bool
    do_neg_mining: bool
    neg_pos_ratio: float
    neg_overlap: float
    code_type: int
    encode_variance_in_target: bool
    map_object_to_agnostic: bool
    ignore_cross_boundary_bbox: bool
    bp_inside: bool
    mining_type: int
    @property
    def nms_param(self) -> NonMaximumSuppressionParameter: ...
    sample_size: int
    use_prior_for_nms: bool
    ignore_difficult_gt: bool
    def __init__(
        self,
        *,
        loc_loss_type: int | str | None = ...,
        conf_loss_type: int | str | None = ...,
        loc_weight: float | None = ...,
        num_classes: int | None = ...,
        share_location: bool | None = ...,
        match_type: int | str | None = ...,
        overlap_threshold: float | None = ...,
        use_prior_for_matching: bool | None = ...,
        background_label_id: int | None = ...,
        use_difficult_gt: bool | None = ...,
        do_neg_mining: bool | None = ...,
        neg_pos_ratio: float | None = ...,
        neg_overlap: float | None = ...,
        code_type: int | str | None = ...,
        encode_variance_in_target: bool | None = ...,
        map_object_to_agnostic: bool | None = ...,
        ignore_cross_boundary_bbox: bool | None = ...,
        bp_inside: bool | None = ...,
        mining_type: int | str | None = ...,
        nms_param: NonMaximumSuppressionParameter | Mapping[str, Any] | None = ...,
        sample_size: int | None = ...,
        use_prior_for_nms: bool | None = ...,
        ignore_difficult_gt: bool | None = ...,
    ) -> None: ...

class NormalizeParameter(Message):
    across_spatial: bool
    @property
    def scale_filler(self) -> FillerParameter: ...
    channel_shared: bool
    eps: float
    def __init__(
        self,
        *,
        across_spatial: bool | None = ...,
        scale_filler: FillerParameter | Mapping[str, Any] | None = ...,
        channel_shared: bool | None = ...,
        eps: float | None = ...,
    ) -> None: ...

class PermuteParameter(Message):
    @property
    def order(self) -> Scalars[int]: ...
    def __init__(
        self,
        *,
        order: Iterable[int] | None = ...,
    ) -> None: ...

class PriorBoxParameter(Message):
    CodeType: EnumTypeWrapper
    CORNER: int
    CENTER_SIZE: int
    CORNER_SIZE: int
    @property
    def min_size(self) -> Scalars[float]: ...
    @property
    def max_size(self) -> Scalars[float]: ...
    @property
    def aspect_ratio(self) -> Scalars[float]: ...
    flip: bool
    clip: bool
    @property
    def variance(self) -> Scalars[float]: ...
    img_size: int
    img_h: int
    img_w: int
    step: float
    step_h: float
    step_w: float
    offset: float
    def __init__(
        self,
        *,
        min_size: Iterable[float] | None = ...,
        max_size: Iterable[float] | None = ...,
        aspect_ratio: Iterable[float] | None = ...,
        flip: bool | None = ...,
        clip: bool | None = ...,
        variance: Iterable[float] | None = ...,
        img_size: int | None = ...,
        img_h: int | None = ...,
        img_w: int | None = ...,
        step: float | None = ...,
        step_h: float | None = ...,
        step_w: float | None = ...,
        offset: float | None = ...,
    ) -> None: ...

class VideoDataParameter(Message):
    VideoType: EnumTypeWrapper
    WEBCAM: int
    VIDEO: int
    video_type: int
    device_id: int
    video_file: str
    skip_frames: int
    def __init__(
        self,
        *,
        video_type: int | str | None = ...,
        device_id: int | None = ...,
        video_file: str | None = ...,
        skip_frames: int | None = ...,
    ) -> None: ...

class C2TensorProto(Message):
    DataType: EnumTypeWrapper
    UNDEFINED: int
    FLOAT: int
    INT32: int
    BYTE: int
    STRING: int
    BOOL: int
    UINT8: int
    INT8: int
    UINT16: int
    INT16: int
    INT64: int
    FLOAT16: int
    DOUBLE: int
    @property
    def dims(self) -> Scalars[int]: ...
    data_type: int
    @property
    def float_data(self) -> Scalars[float]: ...
    @property
    def int32_data(self) -> Scalars[int]: ...
    byte_data: bytes
    @property
    def string_data(self) -> Scalars[bytes]: ...
    @property
    def double_data(self) -> Scalars[float]: ...
    @property
    def int64_data(self) -> Scalars[int]: ...
    name: str
    def __init__(
        self,
        *,
        dims: Iterable[int] | None = ...,
        data_type: int | str | None = ...,
        float_data: Iterable[float] | None = ...,
        int32_data: Iterable[int] | None = ...,
        byte_data: bytes | None = ...,
        string_data: Iterable[bytes] | None = ...,
        double_data: Iterable[float] | None = ...,
        int64_data: Iterable[int] | None = ...,
        name: str | None = ...,
    ) -> None: ...

class C2TensorProtos(Message):
    @property
    def protos(self) -> Messages[C2TensorProto]: ...
    def __init__(
        self,
        *,
        protos: Iterable[C2TensorProto | Mapping[str, Any]] | None = ...,
    ) -> None: ...

class DetectNetGroundTruthParameter(Message):
    GridboxType: EnumTypeWrapper
    GRIDBOX_MAX: int
    GRIDBOX_MIN: int
    CoverageType: EnumTypeWrapper
    RECTANGULAR: int
    class ClassMapping(Message):
        src: int
        dst: int
        def __init__(
            self,
            *,
            src: int | None = ...,
            dst: int | None = ...,
        ) -> None: ...

    stride: int
    scale_cvg: float
    gridbox_type: int
    max_cvg_len: int
    min_cvg_len: int
    coverage_type: int
    image_size_x: int
    image_size_y: int
    obj_norm: bool
    crop_bboxes: bool
    @property
    def object_class(self) -> Messages[DetectNetGroundTruthParameter.ClassMapping]: ...
    def __init__(
        self,
        *,
        stride: int | None = ...,
        scale_cvg: float | None = ...,
        gridbox_type: int | str | None = ...,
        max_cvg_len: int | None = ...,
        min_cvg_len: int | None = ...,
        coverage_type: int | str | None = ...,
        image_size_x: int | None = ...,
        image_size_y: int | None = ...,
        obj_norm: bool | None = ...,
        crop_bboxes: bool | None = ...,
        object_class: Iterable[DetectNetGroundTruthParameter.ClassMapping | Mapping[str, Any]] | None = ...,
    ) -> None: ...

class DetectNetAugmentationParameter(Message):
    crop_prob: float
    shift_x: int
    shift_y: int
    scale_prob: float
    scale_min: float
    scale_max: float
    flip_prob: float
    rotation_prob: float
    max_rotate_degree: float
    hue_rotation_prob: float
    hue_rotation: float
    desaturation_prob: float
    desaturation_max: float
    @property
    def resize_param(self) -> ResizeParameter: ...
    @property
    def noise_param(self) -> NoiseParameter: ...
    @property
    def distort_param(self) -> DistortionParameter: ...
    @property
    def expand_param(self) -> ExpansionParameter: ...
    @property
    def emit_constraint(self) -> EmitConstraint: ...
    def __init__(
        self,
        *,
        crop_prob: float | None = ...,
        shift_x: int | None = ...,
        shift_y: int | None = ...,
        scale_prob: float | None = ...,
        scale_min: float | None = ...,
        scale_max: float | None = ...,
        flip_prob: float | None = ...,
        rotation_prob: float | None = ...,
        max_rotate_degree: float | None = ...,
        hue_rotation_prob: float | None = ...,
        hue_rotation: float | None = ...,
        desaturation_prob: float | None = ...,
        desaturation_max: float | None = ...,
        resize_param: ResizeParameter | Mapping[str, Any] | None = ...,
        noise_param: NoiseParameter | Mapping[str, Any] | None = ...,
        distort_param: DistortionParameter | Mapping[str, Any] | None = ...,
        expand_param: ExpansionParameter | Mapping[str, Any] | None = ...,
        emit_constraint: EmitConstraint | Mapping[str, Any] | None = ...,
    ) -> None: ...

class TRTParameter(Message):
    TRTMode: EnumTypeWrapper
    FP32: int
    FP16: int
    INT8: int
    trt_mode: int
    top_k: int
    deploy: str
    model: str
    @property
    def deploy_outputs(self) -> Scalars[str]: ...
    calibrator: str
    def __init__(
        self,
        *,
        trt_mode: int | str | None = ...,
        top_k: int | None = ...,
        deploy: str | None = ...,
        model: str | None = ...,
        deploy_outputs: Iterable[str] | None = ...,
        calibrator: str | None = ...,
    ) -> None: ...

class CompileNetState(Message):
    is_init: bool
    bn_scale_remove: bool
    bn_scale_merge: bool
    @property
    def kept_bn_layers(self) -> Scalars[str]: ...
    @property
    def negative_conv_names(self) -> Scalars[str]: ...
    @property
    def negative_conv_indexes(self) -> Scalars[int]: ...
    def __init__(
        self,
        *,
        is_init: bool | None = ...,
        bn_scale_remove: bool | None = ...,
        bn_scale_merge: bool | None = ...,
        kept_bn_layers: Iterable[str] | None = ...,
        negative_conv_names: Iterable[str] | None = ...,
        negative_conv_indexes: Iterable[int] | None = ...,
    ) -> None: ...

class MultinodeParameter(Message):
    @property
    def model_parallel(self) -> Messages[MnModelParallelParameter]: ...
    @property
    def compress_layer_type_list(self) -> MnParamGradCompressLayerTypeList: ...
    def __init__(
        self,
        *,
        model_parallel: Iterable[MnModelParallelParameter | Mapping[str, Any]] | None = ...,
        compress_layer_type_list: MnParamGradCompressLayerTypeList | Mapping[str, Any] | None = ...,
    ) -> None: ...

class MnModelParallelParameter(Message):
    layer_from: str
    layer_to: str
    num_nodes: int
    model_parts: int
    def __init__(
        self,
        *,
        layer_from: str | None = ...,
        layer_to: str | None = ...,
        num_nodes: int | None = ...,
        model_parts: int | None = ...,
    ) -> None: ...

class MnParamGradCompressLayerTypeList(Message):
    @property
    def layer_type(self) -> Scalars[str]: ...
    def __init__(
        self,
        *,
        layer_type: Iterable[str] | None = ...,
    ) -> None: ...

class MultiPhaseSolverParameter(Message):
    @property
    def params_pair(self) -> Messages[SolverBatchSizePair]: ...
    def __init__(
        self,
        *,
        params_pair: Iterable[SolverBatchSizePair | Mapping[str, Any]] | None = ...,
    ) -> None: ...

class SolverBatchSizePair(Message):
    @property
    def solver_params(self) -> SolverParameter: ...
    batch_size: int
    def __init__(
        self,
        *,
        solver_params: SolverParameter | Mapping[str, Any] | None = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class RegionLossParameter(Message):
    side: int
    num_class: int
    bias_match: int
    coords: int
    num: int
    softmax: int
    jitter: float
    rescore: int
    object_scale: float
    class_scale: float
    noobject_scale: float
    coord_scale: float
    absolute: int
    thresh: float
    random: int
    @property
    def biases(self) -> Scalars[float]: ...
    softmax_tree: str
    class_map: str
    def __init__(
        self,
        *,
        side: int | None = ...,
        num_class: int | None = ...,
        bias_match: int | None = ...,
        coords: int | None = ...,
        num: int | None = ...,
        softmax: int | None = ...,
        jitter: float | None = ...,
        rescore: int | None = ...,
        object_scale: float | None = ...,
        class_scale: float | None = ...,
        noobject_scale: float | None = ...,
        coord_scale: float | None = ...,
        absolute: int | None = ...,
        thresh: float | None = ...,
        random: int | None = ...,
        biases: Iterable[float] | None = ...,
        softmax_tree: str | None = ...,
        class_map: str | None = ...,
    ) -> None: ...

class EvalDetectionParameter(Message):
    ScoreType: EnumTypeWrapper
    OBJ: int
    PROB: int
    MULTIPLY: int
    side: int
    num_class: int
    num_object: int
    threshold: float
    sqrt: bool
    constriant: bool
    score_type: int
    nms: float
    @property
    def biases(self) -> Scalars[float]: ...
    def __init__(
        self,
        *,
        side: int | None = ...,
        num_class: int | None = ...,
        num_object: int | None = ...,
        threshold: float | None = ...,
        sqrt: bool | None = ...,
        constriant: bool | None = ...,
        score_type: int | str | None = ...,
        nms: float | None = ...,
        biases: Iterable[float] | None = ...,
    ) -> None: ...

class MultinodeLayerParameter(Message):
    num_nodes: int
    model_parts: int
    def __init__(
        self,
        *,
        num_nodes: int | None = ...,
        model_parts: int | None = ...,
    ) -> None: ...

class MnActivationParameter(Message):
    num_nodes_in: int
    num_nodes_out: int
    model_parts_in: int
    model_parts_out: int
    need_reduce: bool
    def __init__(
        self,
        *,
        num_nodes_in: int | None = ...,
        num_nodes_out: int | None = ...,
        model_parts_in: int | None = ...,
        model_parts_out: int | None = ...,
        need_reduce: bool | None = ...,
    ) -> None: ...

class MnParamGradCompressParameter(Message):
    @property
    def param_grad_compress_enable(self) -> Scalars[bool]: ...
    def __init__(
        self,
        *,
        param_grad_compress_enable: Iterable[bool] | None = ...,
    ) -> None: ...

class QuantizationParameter(Message):
    Precision: EnumTypeWrapper
    DYNAMIC_FIXED_POINT: int
    Rounding: EnumTypeWrapper
    NEAREST: int
    precision: int
    rounding_scheme: int
    bw_layer_in: int
    bw_layer_out: int
    bw_params: int
    @property
    def fl_layer_in(self) -> Scalars[int]: ...
    @property
    def fl_layer_out(self) -> Scalars[int]: ...
    @property
    def fl_params(self) -> Scalars[int]: ...
    @property
    def scale_in(self) -> Scalars[float]: ...
    @property
    def scale_out(self) -> Scalars[float]: ...
    @property
    def scale_params(self) -> Scalars[float]: ...
    is_negative_input: bool
    force_u8_input: bool
    def __init__(
        self,
        *,
        precision: int | str | None = ...,
        rounding_scheme: int | str | None = ...,
        bw_layer_in: int | None = ...,
        bw_layer_out: int | None = ...,
        bw_params: int | None = ...,
        fl_layer_in: Iterable[int] | None = ...,
        fl_layer_out: Iterable[int] | None = ...,
        fl_params: Iterable[int] | None = ...,
        scale_in: Iterable[float] | None = ...,
        scale_out: Iterable[float] | None = ...,
        scale_params: Iterable[float] | None = ...,
        is_negative_input: bool | None = ...,
        force_u8_input: bool | None = ...,
    ) -> None: ...

class RandomResizeParameter(Message):
    min_size: int
    max_size: int
    @property
    def resize_param(self) -> ResizeParameter: ...
    def __init__(
        self,
        *,
        min_size: int | None = ...,
        max_size: int | None = ...,
        resize_param: ResizeParameter | Mapping[str, Any] | None = ...,
    ) -> None: ...

class RandomAspectRatioParameter(Message):
    min_area_ratio: float
    max_area_ratio: float
    aspect_ratio_change: float
    max_attempt: int
    @property
    def resize_param(self) -> ResizeParameter: ...
    def __init__(
        self,
        *,
        min_area_ratio: float | None = ...,
        max_area_ratio: float | None = ...,
        aspect_ratio_change: float | None = ...,
        max_attempt: int | None = ...,
        resize_param: ResizeParameter | Mapping[str, Any] | None = ...,
    ) -> None: ...

class SplitParameter(Message):
    Engine: EnumTypeWrapper
    DEFAULT: int
    CAFFE: int
    MKL2017: int
    MKLDNN: int
    engine: int
    def __init__(
        self,
        *,
        engine: int | str | None = ...,
    ) -> None: ...

class BoxAnnotatorOHEMParameter(Message):
    roi_per_img: int
    ignore_label: int
    def __init__(
        self,
        *,
        roi_per_img: int | None = ...,
        ignore_label: int | None = ...,
    ) -> None: ...

class ReorgParameter(Message):
    stride: int
    reverse: bool
    def __init__(
        self,
        *,
        stride: int | None = ...,
        reverse: bool | None = ...,
    ) -> None: ...

class SpatialDropoutParameter(Message):
    dropout_ratio: float
    def __init__(
        self,
        *,
        dropout_ratio: float | None = ...,
    ) -> None: ...

class PSROIPoolingParameter(Message):
    spatial_scale: float
    output_dim: int
    group_size: int
    def __init__(
        self,
        *,
        spatial_scale: float | None = ...,
        output_dim: int | None = ...,
        group_size: int | None = ...,
    ) -> None: ...

class ROIPoolingParameter(Message):
    pooled_h: int
    pooled_w: int
    spatial_scale: float
    @property
    def pooled_size(self) -> Scalars[int]: ...
    def __init__(
        self,
        *,
        pooled_h: int | None = ...,
        pooled_w: int | None = ...,
        spatial_scale: float | None = ...,
        pooled_size: Iterable[int] | None = ...,
    ) -> None: ...

class SmoothL1LossParameter(Message):
    sigma: float
    def __init__(
        self,
        *,
        sigma: float | None = ...,
    ) -> None: ...

class BNParameter(Message):
    Engine: EnumTypeWrapper
    DEFAULT: int
    CAFFE: int
    CUDNN: int
    BNMode: EnumTypeWrapper
    LEARN: int
    INFERENCE: int
    @property
    def slope_filler(self) -> FillerParameter: ...
    @property
    def bias_filler(self) -> FillerParameter: ...
    momentum: float
    eps: float
    frozen: bool
    engine: int
    @property
    def scale_filler(self) -> FillerParameter: ...
    @property
    def shift_filler(self) -> FillerParameter: ...
    bn_mode: int
    def __init__(
        self,
        *,
        slope_filler: FillerParameter | Mapping[str, Any] | None = ...,
        bias_filler: FillerParameter | Mapping[str, Any] | None = ...,
        momentum: float | None = ...,
        eps: float | None = ...,
        frozen: bool | None = ...,
        engine: int | str | None = ...,
        scale_filler: FillerParameter | Mapping[str, Any] | None = ...,
        shift_filler: FillerParameter | Mapping[str, Any] | None = ...,
        bn_mode: int | str | None = ...,
    ) -> None: ...

class InterpParameter(Message):
    height: int
    width: int
    zoom_factor: int
    shrink_factor: int
    pad_beg: int
    pad_end: int
    def __init__(
        self,
        *,
        height: int | None = ...,
        width: int | None = ...,
        zoom_factor: int | None = ...,
        shrink_factor: int | None = ...,
        pad_beg: int | None = ...,
        pad_end: int | None = ...,
    ) -> None: ...

class ShuffleChannelParameter(Message):
    group: int
    def __init__(
        self,
        *,
        group: int | None = ...,
    ) -> None: ...

class UnpoolingParameter(Message):
    UnpoolMethod: EnumTypeWrapper
    MAX: int
    AVE: int
    TILE: int
    unpool: int
    kernel_size: int
    kernel_h: int
    kernel_w: int
    stride: int
    stride_h: int
    stride_w: int
    pad: int
    pad_h: int
    pad_w: int
    unpool_size: int
    unpool_h: int
    unpool_w: int
    def __init__(
        self,
        *,
        unpool: int | str | None = ...,
        kernel_size: int | None = ...,
        kernel_h: int | None = ...,
        kernel_w: int | None = ...,
        stride: int | None = ...,
        stride_h: int | None = ...,
        stride_w: int | None = ...,
        pad: int | None = ...,
        pad_h: int | None = ...,
        pad_w: int | None = ...,
        unpool_size: int | None = ...,
        unpool_h: int | None = ...,
        unpool_w: int | None = ...,
    ) -> None: ...

class UpsampleParameter(Message):
    scale: int
    scale_h: int
    scale_w: int
    pad_out_h: bool
    pad_out_w: bool
    upsample_h: int
    upsample_w: int
    def __init__(
        self,
        *,
        scale: int | None = ...,
        scale_h: int | None = ...,
        scale_w: int | None = ...,
        pad_out_h: bool | None = ...,
        pad_out_w: bool | None = ...,
        upsample_h: int | None = ...,
        upsample_w: int | None = ...,
    ) -> None: ...

class FlipParameter(Message):
    flip_width: bool
    flip_height: bool
    def __init__(
        self,
        *,
        flip_width: bool | None = ...,
        flip_height: bool | None = ...,
    ) -> None: ...

class LSTMParameter(Message):
    num_output: int
    clipping_threshold: float
    @property
    def weight_filler(self) -> FillerParameter: ...
    @property
    def bias_filler(self) -> FillerParameter: ...
    batch_size: int
    def __init__(
        self,
        *,
        num_output: int | None = ...,
        clipping_threshold: float | None = ...,
        weight_filler: FillerParameter | Mapping[str, Any] | None = ...,
        bias_filler: FillerParameter | Mapping[str, Any] | None = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class ProposalParameter(Message):
    feat_stride: int
    base_size: int
    min_size: int
    @property
    def ratio(self) -> Scalars[float]: ...
    @property
    def scale(self) -> Scalars[float]: ...
    pre_nms_topn: int
    post_nms_topn: int
    nms_thresh: float
    def __init__(
        self,
        *,
        feat_stride: int | None = ...,
        base_size: int | None = ...,
        min_size: int | None = ...,
        ratio: Iterable[float] | None = ...,
        scale: Iterable[float] | None = ...,
        pre_nms_topn: int | None = ...,
        post_nms_topn: int | None = ...,
        nms_thresh: float | None = ...,
    ) -> None: ...

class WarpCTCParameter(Message):
    blank_label: int
    def __init__(
        self,
        *,
        blank_label: int | None = ...,
    ) -> None: ...

class CTCLossParameter(Message):
    output_delay: int
    blank_index: int
    preprocess_collapse_repeated: bool
    ctc_merge_repeated: bool
    loss_calculation_t: int
    alphabet_size: int
    time_step: int
    blank_label: int
    def __init__(
        self,
        *,
        output_delay: int | None = ...,
        blank_index: int | None = ...,
        preprocess_collapse_repeated: bool | None = ...,
        ctc_merge_repeated: bool | None = ...,
        loss_calculation_t: int | None = ...,
        alphabet_size: int | None = ...,
        time_step: int | None = ...,
        blank_label: int | None = ...,
    ) -> None: ...

class CTCDecoderParameter(Message):
    blank_index: int
    ctc_merge_repeated: bool
    def __init__(
        self,
        *,
        blank_index: int | None = ...,
        ctc_merge_repeated: bool | None = ...,
    ) -> None: ...

class ContinuationIndicatorParameter(Message):
    time_step: int
    batch_size: int
    def __init__(
        self,
        *,
        time_step: int | None = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class CenterLossParameter(Message):
    num_output: int
    @property
    def center_filler(self) -> FillerParameter: ...
    axis: int
    def __init__(
        self,
        *,
        num_output: int | None = ...,
        center_filler: FillerParameter | Mapping[str, Any] | None = ...,
        axis: int | None = ...,
    ) -> None: ...

class GroupNormParameter(Message):
    eps: float
    group_num: int
    def __init__(
        self,
        *,
        eps: float | None = ...,
        group_num: int | None = ...,
    ) -> None: ...

class L1LossParameter(Message):
    l2_per_location: bool
    l2_prescale_by_channels: bool
    normalize_by_num_entries: bool
    epsilon: float
    plateau: float
    def __init__(
        self,
        *,
        l2_per_location: bool | None = ...,
        l2_prescale_by_channels: bool | None = ...,
        normalize_by_num_entries: bool | None = ...,
        epsilon: float | None = ...,
        plateau: float | None = ...,
    ) -> None: ...

class LayerNormParameter(Message):
    eps: float
    axis: int
    def __init__(
        self,
        *,
        eps: float | None = ...,
        axis: int | None = ...,
    ) -> None: ...

class MatMulParameter(Message):
    transpose_a: bool
    transpose_b: bool
    def __init__(
        self,
        *,
        transpose_a: bool | None = ...,
        transpose_b: bool | None = ...,
    ) -> None: ...

class ROIAlignParameter(Message):
    pooled_h: int
    pooled_w: int
    spatial_scale: float
    sampling_ratio: int
    roi_end_mode: int
    def __init__(
        self,
        *,
        pooled_h: int | None = ...,
        pooled_w: int | None = ...,
        spatial_scale: float | None = ...,
        sampling_ratio: int | None = ...,
        roi_end_mode: int | None = ...,
    ) -> None: ...

class SoftmaxFocalLossParameter(Message):
    alpha: float
    gamma: float
    def __init__(
        self,
        *,
        alpha: float | None = ...,
        gamma: float | None = ...,
    ) -> None: ...

class TripletLossParameter(Message):
    margin: float
    def __init__(
        self,
        *,
        margin: float | None = ...,
    ) -> None: ...

__all__ = [
    "AccuracyParameter",
    "AnnotatedDataParameter",
    "AnnotatedDatum",
    "Annotation",
    "AnnotationGroup",
    "ArgMaxParameter",
    "BFLOAT16",
    "BNParameter",
    "BOOL",
    "BatchNormParameter",
    "BatchSampler",
    "BiasParameter",
    "BlobProto",
    "BlobProtoVector",
    "BlobShape",
    "BoxAnnotatorOHEMParameter",
    "C2TensorProto",
    "C2TensorProtos",
    "CTCDecoderParameter",
    "CTCLossParameter",
    "CenterLossParameter",
    "ClipParameter",
    "CompileNetState",
    "ConcatParameter",
    "ContinuationIndicatorParameter",
    "ContrastiveLossParameter",
    "ConvolutionParameter",
    "CropParameter",
    "DOUBLE",
    "DataParameter",
    "Datum",
    "DatumTypeInfo",
    "DatumTypeInfo_ANNOTATED_DATUM",
    "DatumTypeInfo_DATUM",
    "DetectNetAugmentationParameter",
    "DetectNetGroundTruthParameter",
    "DetectionEvaluateParameter",
    "DetectionOutputParameter",
    "DistortionParameter",
    "DropoutParameter",
    "DummyDataParameter",
    "ELUParameter",
    "EltwiseParameter",
    "EmbedParameter",
    "EmitConstraint",
    "EvalDetectionParameter",
    "ExpParameter",
    "ExpansionParameter",
    "FLOAT",
    "FLOAT16",
    "FillerParameter",
    "FlattenParameter",
    "FlipParameter",
    "GroupNormParameter",
    "HDF5DataParameter",
    "HDF5OutputParameter",
    "HingeLossParameter",
    "INT",
    "ImageDataParameter",
    "InfogainLossParameter",
    "InnerProductParameter",
    "InputParameter",
    "InterpParameter",
    "L1LossParameter",
    "LRNParameter",
    "LSTMParameter",
    "LabelMap",
    "LabelMapItem",
    "LayerNormParameter",
    "LayerParameter",
    "LogParameter",
    "LossParameter",
    "MVNParameter",
    "MatMulParameter",
    "MemoryDataParameter",
    "MnActivationParameter",
    "MnModelParallelParameter",
    "MnParamGradCompressLayerTypeList",
    "MnParamGradCompressParameter",
    "MultiBoxLossParameter",
    "MultiPhaseSolverParameter",
    "MultinodeLayerParameter",
    "MultinodeParameter",
    "NCHW",
    "NHWC",
    "NetParameter",
    "NetState",
    "NetStateRule",
    "NoiseParameter",
    "NonMaximumSuppressionParameter",
    "NormalizeParameter",
    "NormalizedBBox",
    "PReLUParameter",
    "PSROIPoolingParameter",
    "Packing",
    "ParamSpec",
    "ParameterParameter",
    "PermuteParameter",
    "Phase",
    "PoolingParameter",
    "PowerParameter",
    "PriorBoxParameter",
    "ProposalParameter",
    "PythonParameter",
    "QuantizationParameter",
    "ROIAlignParameter",
    "ROIPoolingParameter",
    "RandomAspectRatioParameter",
    "RandomResizeParameter",
    "ReLUParameter",
    "RecurrentParameter",
    "ReductionParameter",
    "RegionLossParameter",
    "ReorgParameter",
    "ReshapeParameter",
    "ResizeParameter",
    "SPPParameter",
    "SaltPepperParameter",
    "SampleConstraint",
    "Sampler",
    "SaveOutputParameter",
    "ScaleParameter",
    "ShuffleChannelParameter",
    "SigmoidParameter",
    "SliceParameter",
    "SmoothL1LossParameter",
    "SoftmaxFocalLossParameter",
    "SoftmaxParameter",
    "SolverBatchSizePair",
    "SolverParameter",
    "SolverState",
    "SpatialDropoutParameter",
    "SplitParameter",
    "SwishParameter",
    "TEST",
    "TRAIN",
    "TRTParameter",
    "TanHParameter",
    "ThresholdParameter",
    "TileParameter",
    "TransformationParameter",
    "TripletLossParameter",
    "Type",
    "UINT",
    "UnpoolingParameter",
    "UpsampleParameter",
    "V0LayerParameter",
    "V1LayerParameter",
    "VideoDataParameter",
    "WarpCTCParameter",
    "WindowDataParameter",
]
