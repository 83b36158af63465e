"""Programs that workers start to carry effects out, and what sees to it that nothing of them outlives its effect."""
