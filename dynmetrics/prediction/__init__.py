"""Quality of predictions: rollouts, images, point sets, regressions and surprise."""

from dynmetrics.prediction.chamfer import ChamferDistance, chamfer_distance
from dynmetrics.prediction.peak_signal import PSNR, psnr
from dynmetrics.prediction.regression import R2Score, r2_score
from dynmetrics.prediction.rollout import RolloutError, rollout_error
from dynmetrics.prediction.structural_similarity import SSIM, ssim
from dynmetrics.prediction.surprise import Surprise

__all__ = [
    "PSNR",
    "SSIM",
    "ChamferDistance",
    "R2Score",
    "RolloutError",
    "Surprise",
    "chamfer_distance",
    "psnr",
    "r2_score",
    "rollout_error",
    "ssim",
]
